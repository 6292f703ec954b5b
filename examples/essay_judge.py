"""Judge an essay along several dimensions at once, then grade it (the SGLang paper's Figure 2)."""

import sgjax as sgl

DIMENSIONS = ["clarity", "originality", "evidence"]
VERDICT = r'\{"summary": "[\w ,]{10,120}\.", "grade": "[ABCD][+-]?"\}'


@sgl.function
def judge(s, topic, essay):
    s += sgl.system("You assess essays. You are fair and brief.")
    s += sgl.user(f"The topic was: {topic}\n\nThe essay:\n{essay}\n\nIs it about the topic?")
    s += sgl.assistant(sgl.select("related", ["yes", "no"]))
    if s["related"] == "no":
        return
    forks = s.fork(len(DIMENSIONS))
    for f, dimension in zip(forks, DIMENSIONS, strict=True):
        f += sgl.user(f"Assess its {dimension} in two sentences. Finish with END.")
        f += sgl.assistant(sgl.gen("judgment", stop="END", max_tokens=80))
    judgments = "\n".join(f"{d}: {f['judgment']}" for f, d in zip(forks, DIMENSIONS, strict=True))
    s += sgl.user(f"These are the assessments:\n{judgments}\nSum them up and give a grade.")
    s += sgl.assistant(sgl.gen("verdict", regex=VERDICT))


if __name__ == "__main__":
    with sgl.Engine() as engine:
        essay = "Tides are the sea's slow breath. The moon pulls, the water follows, twice a day."
        state = judge.run(topic="What causes tides?", essay=essay, backend=engine, temperature=0)
        print(state["verdict"] if state["related"] == "yes" else "The essay misses the topic.")
