"""A conversation of several turns, streamed as it is written."""

import sgjax as sgl


@sgl.function
def chat(s, turns):
    s += sgl.system("You are a helpful guide to the night sky. Answer in one or two sentences.")
    for i, turn in enumerate(turns):
        s += sgl.user(turn)
        s += sgl.assistant(sgl.gen(f"answer{i}", max_tokens=64))


if __name__ == "__main__":
    questions = ["Which star is the brightest at night?", "How far away is it?"]
    with sgl.Engine() as engine:
        state = chat.run(turns=questions, backend=engine, temperature=0, stream=True)
        for i, question in enumerate(questions):
            print("You:  ", question)
            print("Guide: ", end="")
            for piece in state.text_iter(f"answer{i}"):
                print(piece, end="", flush=True)
            print()
