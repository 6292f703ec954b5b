"""Answer in two steps: first the points in short, then all of them expanded at once."""

import sgjax as sgl


@sgl.function
def answer(s, question, num_points=3):
    s += sgl.user(f"{question}\nName {num_points} points, a few words each.")
    s += sgl.assistant_begin()
    points = []
    for i in range(1, num_points + 1):
        s += f"{i}. " + sgl.gen(f"point{i}", max_tokens=16, stop="\n") + "\n"
        points.append(f"point{i}")
    s += sgl.assistant_end()
    group = s.fork(num_points)
    for i, member in enumerate(group, 1):
        member += sgl.user(f"Explain point {i} in two sentences.")
        member += sgl.assistant(sgl.gen("text", max_tokens=64))
    texts = [f"{s[p]}: {m['text']}" for p, m in zip(points, group, strict=True)]
    s.set_var("answer", "\n\n".join(texts))


if __name__ == "__main__":
    with sgl.Engine() as engine:
        state = answer.run(question="How does one learn to cook?", backend=engine, temperature=0.3)
        print(state["answer"])
