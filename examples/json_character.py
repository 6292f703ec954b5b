"""JSON in two ways: a schema for the whole object, or a program that writes its frame."""

import sgjax as sgl

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 30},
        "age": {"type": "integer", "minimum": 1, "maximum": 150},
        "house": {"enum": ["Oak", "Birch", "Willow"]},
    },
    "required": ["name", "age", "house"],
    "additionalProperties": False,
}


@sgl.function
def by_schema(s, description):
    s += f"{description}\nThe character as JSON:\n"
    s += sgl.gen("character", json_schema=SCHEMA, max_tokens=96)


@sgl.function
def by_program(s, description):
    s += f"{description}\nThe character as JSON:\n"
    with s.var_scope("character"):
        s += '{\n  "name": "' + sgl.gen("name", regex=r"[A-Z][a-z]{1,12}( [A-Z][a-z]{1,12})?")
        s += '",\n  "age": ' + sgl.gen("age", regex=r"[1-9][0-9]?")
        s += ',\n  "house": "' + sgl.select("house", ["Oak", "Birch", "Willow"]) + '"\n}'


if __name__ == "__main__":
    with sgl.Engine() as engine:
        description = "Mira is an old botanist who lives among birches."
        for program in (by_schema, by_program):
            state = program.run(description=description, backend=engine, temperature=0)
            print(state["character"])
