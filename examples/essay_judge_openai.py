"""The essay judge of essay_judge.py on the plain OpenAI client, to compare."""

import json
from concurrent.futures import ThreadPoolExecutor

import openai

DIMENSIONS = ["clarity", "originality", "evidence"]


class Judge:
    def __init__(self, client, model):
        self.client = client
        self.model = model

    def ask(self, messages, max_tokens, stop=None):
        response = self.client.chat.completions.create(
            model=self.model,
            messages=messages,
            max_tokens=max_tokens,
            stop=stop,
            temperature=0,
        )
        return response.choices[0].message.content

    def is_related(self, messages):
        response = self.client.chat.completions.create(
            model=self.model,
            messages=messages,
            max_tokens=1,
            temperature=0,
            logprobs=True,
            top_logprobs=20,
        )
        scores = {"yes": float("-inf"), "no": float("-inf")}
        for entry in response.choices[0].logprobs.content[0].top_logprobs:
            token = entry.token.strip().lower()
            if token in scores:
                scores[token] = max(scores[token], entry.logprob)
        return scores["yes"] >= scores["no"]

    def assess(self, messages, dimension):
        question = f"Assess its {dimension} in two sentences. Finish with END."
        return self.ask([*messages, {"role": "user", "content": question}], 80, stop=["END"])

    def verdict(self, messages, attempts=3):
        for _ in range(attempts):
            text = self.ask(messages, 128)
            try:
                verdict = json.loads(text[text.index("{") : text.rindex("}") + 1])
            except ValueError:
                continue
            if set(verdict) == {"summary", "grade"} and verdict["grade"][:1] in "ABCD":
                return json.dumps(verdict)
        raise ValueError(f"no verdict in {attempts} attempts")

    def judge(self, topic, essay):
        messages = [
            {"role": "system", "content": "You assess essays. You are fair and brief."},
            {
                "role": "user",
                "content": f"The topic was: {topic}\n\nThe essay:\n{essay}\n\n"
                "Is it about the topic?",
            },
        ]
        if not self.is_related(messages):
            return None
        messages.append({"role": "assistant", "content": "yes"})
        with ThreadPoolExecutor(len(DIMENSIONS)) as pool:
            assessments = list(pool.map(lambda d: self.assess(messages, d), DIMENSIONS))
        judgments = "\n".join(f"{d}: {a}" for d, a in zip(DIMENSIONS, assessments, strict=True))
        request = (
            f"These are the assessments:\n{judgments}\nSum them up and give a grade. Answer in "
            'JSON: {"summary": "...", "grade": "A to D, with + or -"}'
        )
        messages.append({"role": "user", "content": request})
        return self.verdict(messages)


if __name__ == "__main__":
    essay = "Tides are the sea's slow breath. The moon pulls, the water follows, twice a day."
    verdict = Judge(openai.OpenAI(), "gpt-4o-mini").judge("What causes tides?", essay)
    print(verdict or "The essay misses the topic.")
