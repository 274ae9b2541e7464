# SPDX-License-Identifier: Apache-2.0
"""Lists errors of model files: (id, exit code, place that the message names,
words of the command), after the functions that make the files."""


def node(document, target):
    return next(n for n in document["graph_module"]["graph"]["nodes"]
                if target in n["target"])


def values(document):
    return document["graph_module"]["graph"]["tensor_values"]


def make(b):
    def replace(path, data):
        def change(files):
            files[path] = data
        return change

    def remove(path):
        return lambda files: files.pop(path)

    b.archive("no-format.pt2", remove("tiny/archive_format"))
    b.archive("pickle.pt2", lambda files: (
        files.clear(), files.update({"x/data.pkl": b"x", "x/version": b"3"})))
    b.archive("version.pt2", replace("tiny/archive_version", b"7"))
    b.archive("big-endian.pt2", replace("tiny/byteorder", b"big"))
    b.archive("two.pt2", lambda files: files.update(
        {"tiny/models/other.json": files["tiny/models/model.json"]}))
    b.archive("json.pt2", replace("tiny/models/model.json", b'{"a": ]'))
    b.archive("no-weight.pt2", remove("tiny/data/weights/weight_1"))
    b.archive("half.pt2", lambda files: None)
    with open(b.at("half.pt2"), "rb") as file:
        whole = file.read()
    b.write("half.pt2", whole[:len(whole) // 2])
    b.write("text.pt2", "this is no model\n" * 100)

    def number(d):
        node(d, "add_.Tensor")["inputs"][1]["arg"] = {"as_int": 2 ** 70}

    def unknown_op(d):
        node(d, "embedding")["target"] = "torch.ops.aten.nobody.default"

    def argument(d):
        node(d, "embedding")["inputs"][0]["name"] = "wait"

    def shape(d):
        values(d)["embedding"]["sizes"][0] = {"as_int": 7}

    def layout(d):
        values(d)["embedding"]["layout"] = 1

    def lost_value(d):
        del values(d)["embedding"]

    def output(d):
        d["graph_module"]["signature"]["output_specs"].pop()

    def schema(d):
        d["schema_version"]["major"] = 5

    def stored(d):
        values(d)["p_fc_weight"]["sizes"] = [{"as_int": 4}, {"as_int": 16}]

    def ranks(d):
        one = {"as_int": 1}
        values(d)["embedding"]["sizes"] = [one] * 40
        values(d)["embedding"]["strides"] = [one] * 40

    for change in (number, unknown_op, argument, shape,
                   layout, lost_value, output, schema, stored, ranks):
        b.model(change.__name__ + ".pt2", change)


CASES = [
    ("pt2.missing-part", 65, "no-format.pt2", "show no-format.pt2"),
    ("pt2.pickle", 65, "pickle.pt2", "show pickle.pt2"),
    ("pt2.version", 65, "version.pt2", "show version.pt2"),
    ("pt2.version", 65, "schema.pt2", "show schema.pt2"),
    ("pt2.byte-order", 65, "big-endian.pt2", "show big-endian.pt2"),
    ("pt2.several-models", 65, "two.pt2", "show two.pt2"),
    ("pt2.json", 65, "json.pt2", "show json.pt2"),
    ("pt2.data-missing", 65, "no-weight.pt2", "show no-weight.pt2"),
    ("zip.damaged", 65, "half.pt2", "show half.pt2"),
    ("zip.damaged", 65, "text.pt2", "show text.pt2"),
    ("pt2.number", 65, "number.pt2", "show number.pt2"),
    ("op.not-supported", 65, "unknown_op.pt2", "show unknown_op.pt2"),
    ("op.argument", 65, "argument.pt2", "show argument.pt2"),
    ("op.result", 65, "shape.pt2", "show shape.pt2"),
    ("pt2.layout", 65, "layout.pt2", "show layout.pt2"),
    ("pt2.rank", 65, "ranks.pt2", "show ranks.pt2"),
    ("pt2.inconsistent", 65, "lost_value.pt2", "show lost_value.pt2"),
    ("pt2.inconsistent", 65, "output.pt2", "show output.pt2"),
    ("pt2.stored-shape", 65, "stored.pt2", "show stored.pt2"),
]
