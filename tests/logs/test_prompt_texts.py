"""The file of prompt texts has each prompt once, despite kills and damage."""

from budgetalloc.logs.ledger import read_log
from budgetalloc.logs.ledger_writer import LedgerWriter
from budgetalloc.logs.prompt_texts import LONGEST, TextsWriter, path_next_to, read_texts

TEXTS = {"a": "2 + 2 =", 7: "Zeile\nzwei 中", "long": "x" * 1000}


def asked_for(asked):
    """A lookup in TEXTS, which appends to `asked` the ids of each call."""

    def texts_of(ids):
        asked.append(list(ids))
        return {name: TEXTS[name] for name in ids if name in TEXTS}

    return texts_of


def test_each_text_is_written_once_and_shortened(tmp_path):
    ledger, asked = tmp_path / "ledger.jsonl", []
    writer = TextsWriter(ledger)
    for ids in (["a", 7, "a"], ["a", 7], ["long", "no text"], ["no text"]):
        writer.add(ids, asked_for(asked))
    assert asked == [["a", 7], ["long", "no text"]]
    expected = {name: text[:LONGEST] for name, text in TEXTS.items()}
    assert read_texts(ledger) == expected

    size = path_next_to(ledger).stat().st_size
    TextsWriter(ledger).add(TEXTS, asked_for(asked))  # a resumed run
    assert path_next_to(ledger).stat().st_size == size


def test_a_torn_line_and_foreign_ones_are_left_out(tmp_path):
    ledger = tmp_path / "ledger.jsonl"
    assert read_texts(ledger) == {}
    path_next_to(ledger).write_bytes(b'{"id": "a", "text": "1"}\n[]\n\xff\n{"id": 1.5, "text": ""}\n{"id": "b", "te')
    TextsWriter(ledger).add([7], asked_for([]))
    assert read_texts(ledger) == {"a": "1", 7: TEXTS[7]}


def test_a_ledger_is_still_the_one_log_of_its_folder_and_knows_the_texts(tmp_path):
    log = LedgerWriter(tmp_path / "ledger.jsonl")
    log.append(0, ["a", 7], [0.0, 1.0], [1, 1], [0.5, 0.5], [1, 1])
    TextsWriter(log.path).add(["a", 7], asked_for([]))
    reading = read_log(tmp_path)
    assert reading.kind == "ledger"
    assert reading.texts["a"] == "2 + 2 ="
