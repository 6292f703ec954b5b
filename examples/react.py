"""ReAct: the model thinks, acts, sees what came of it, and thinks again."""

import sgjax as sgl

FACTS = {
    "Eiffel Tower": "The Eiffel Tower is an iron tower in Paris, finished in 1889.",
    "Paris": "Paris is the capital of France. It lies on the Seine.",
    "Seine": "The Seine is a river of 777 km that flows into the English Channel.",
}

SHOT = """Question: Which river flows through the capital of Austria?
Thought 1: I need the capital of Austria first.
Action 1: Search[Austria]
Observation 1: Austria is a country in Europe. Its capital is Vienna.
Thought 2: Now I look up Vienna.
Action 2: Search[Vienna]
Observation 2: Vienna is the capital of Austria. It lies on the Danube.
Thought 3: The river is the Danube.
Action 3: Finish[Danube]

"""


def search(name):
    """Look a name up."""
    return FACTS.get(name, f"Nothing is known of {name}. Known are: {', '.join(FACTS)}.")


@sgl.function
def react(s, question, max_steps=5):
    s += "Answer questions with Search[name] and Finish[answer].\n\n" + SHOT
    s += f"Question: {question}\n"
    for i in range(1, max_steps + 1):
        s += f"Thought {i}:" + sgl.gen("thought", max_tokens=40, stop="\n") + "\n"
        s += f"Action {i}: " + sgl.select("kind", ["Search", "Finish"])
        s += "[" + sgl.gen("target", max_tokens=16, stop="]") + "]\n"
        if s["kind"] == "Finish":
            s.set_var("answer", s["target"])
            return
        s += f"Observation {i}: {search(s['target'])}\n"


if __name__ == "__main__":
    with sgl.Engine() as engine:
        state = react.run(
            question="How long is the river of the Eiffel Tower's city?",
            backend=engine,
            temperature=0,
        )
        print(state.text()[state.text().rindex("Question:") :])
