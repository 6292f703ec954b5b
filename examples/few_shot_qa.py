"""Few-shot questions in a batch: the examples are computed once for all of them."""

import sgjax as sgl

SHOTS = [
    ("Which is the largest planet?", ["Mars", "Jupiter", "Venus"], "Jupiter"),
    ("What do bees make?", ["silk", "milk", "honey"], "honey"),
    ("Which metal is liquid at room temperature?", ["iron", "mercury", "gold"], "mercury"),
]

QUESTIONS = [
    {"question": "Which ocean is the largest?", "options": ["Pacific", "Arctic", "Indian"]},
    {"question": "What is frozen water called?", "options": ["steam", "ice", "fog"]},
    {"question": "How many legs has a spider?", "options": ["six", "eight", "ten"]},
]


@sgl.function
def answer(s, question, options):
    s += "Answer with one of the options.\n\n"
    for shot, choices, solution in SHOTS:
        s += f"Question: {shot}\nOptions: {', '.join(choices)}\nAnswer: {solution}\n\n"
    s += f"Question: {question}\nOptions: {', '.join(options)}\nAnswer: "
    s += sgl.select("answer", options)


if __name__ == "__main__":
    with sgl.Engine() as engine:
        states = answer.run_batch(QUESTIONS, backend=engine, progress_bar=True)
        for row, state in zip(QUESTIONS, states, strict=True):
            print(row["question"], "->", state["answer"])
        print("cache hit rate:", round(engine.get_server_info()["cache_hit_rate"], 2))
