"""Bytes become plain values, or one error that says where they stop being a manifest."""

import json

import pytest

from volsched.kube.documents import read_documents
from volsched.kube.problems import BYTES_MAX, DEPTH_MAX, REPEATED_MAX, ManifestError


def values(text: str | bytes) -> list[object]:
    data = text if isinstance(text, bytes) else text.encode()
    return [document.value for document in read_documents(data, source="in.yaml")]


def refusal(text: str | bytes) -> str:
    with pytest.raises(ManifestError) as caught:
        values(text)
    assert caught.value.unreadable
    assert len(caught.value.problems) == 1
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("in.yaml: ")
    return message


# --- what is read ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: 2026-11-16", "2026-11-16"),
        ("a: 2026-11-16T20:59:01Z", "2026-11-16T20:59:01Z"),
        ("a: 2001-12-14 21:59:43.10 -5", "2001-12-14 21:59:43.10 -5"),
    ],
)
def test_yaml_timestamps_stay_strings(text: str, expected: str) -> None:
    assert values(text) == [{"a": expected}]


@pytest.mark.parametrize(
    ("plain", "expected"),
    [
        ("yes", True),
        ("Off", False),
        ("true", True),
        ("y", "y"),
        ("12", 12),
        ("-0x1F", -31),
        ("0b101", 5),
        ("0777", 511),
        ("1_000", 1000),
        ("08", "08"),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", "1e3"),
        ("1.0e+3", 1000.0),
        ("10Gi", "10Gi"),
        ('"12"', "12"),
        ("'yes'", "yes"),
        ("! 12", 12),
        ("!!str 12", "12"),
        ('!!int "12"', 12),
        ('!!float "2"', 2.0),
        ("!!bool yes", True),
        ("!!map {b: !!seq [1]}", {"b": [1]}),
        ("=", "="),
    ],
)
def test_plain_scalars_resolve_as_in_yaml_1_1(plain: str, expected: object) -> None:
    (value,) = values(f"a: {plain}")
    assert value == {"a": expected}
    assert type(value["a"]) is type(expected)


@pytest.mark.parametrize("plain", ["0x_", "0b_", "._", "12:30", "1:30:00", "190:20:30.15", "-_"])
def test_text_that_only_looks_like_a_number_stays_text(plain: str) -> None:
    assert values(f"a: {plain}") == [{"a": plain}]


def test_keys_that_are_no_strings_become_strings_as_in_json() -> None:
    assert values("8080: a\ntrue: b\n1.5: c\nno: d") == [{"8080": "a", "true": "b", "1.5": "c", "false": "d"}]


@pytest.mark.parametrize(
    "text", ["a: null\nb: 1\nc: {d: ~, e: }", '{"a": null, "b": 1, "c": {"d": null, "e": null}}']
)
def test_nulls_are_dropped_from_mappings_at_every_level(text: str) -> None:
    assert values(text) == [{"b": 1, "c": {}}]


@pytest.mark.parametrize("text", ["a: [1, null]", '{"a": [1, null]}'])
def test_nulls_in_lists_are_left_for_the_caller_to_name(text: str) -> None:
    assert values(text) == [{"a": [1, None]}]


def test_empty_documents_are_skipped_but_counted() -> None:
    documents = read_documents(b"---\n# nothing\n---\na: 1\n---\n---\nb: 2\n", source="in.yaml")
    assert [(document.number, document.value) for document in documents] == [(2, {"a": 1}), (4, {"b": 2})]


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment", "---", "---\n...\n---\n"])
def test_input_without_content_has_no_documents(text: str) -> None:
    assert values(text) == []


def test_json_values_may_follow_one_another() -> None:
    assert values('{"a": 1}\n{"b": 2}{"c": 3}  ') == [{"a": 1}, {"b": 2}, {"c": 3}]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{a: 1, b: [x, y]}", [{"a": 1, "b": ["x", "y"]}]),
        ('{"a": 1,}', [{"a": 1}]),
        ('{"a": 1}\n---\n{"b": 2}', [{"a": 1}, {"b": 2}]),
        ("[a, b]", [["a", "b"]]),
    ],
)
def test_flow_style_yaml_that_starts_like_json_is_yaml(text: str, expected: object) -> None:
    assert values(text) == expected


def test_a_utf_8_byte_order_mark_is_accepted() -> None:
    assert values(b"\xef\xbb\xbfa: 1") == [{"a": 1}]
    assert values(b'\xef\xbb\xbf{"a": 1}') == [{"a": 1}]


def test_whole_surrogate_pairs_in_json_are_one_character() -> None:
    assert values(r'{"a": "\ud83d\ude00"}') == [{"a": "\U0001f600"}]


# --- aliases and merge keys -----------------------------------------------------------------------------


def test_aliases_repeat_values_within_their_document() -> None:
    assert values("a: &x {b: 1}\nc: *x\nd: [*x]") == [{"a": {"b": 1}, "c": {"b": 1}, "d": [{"b": 1}]}]
    assert "repeats no value" in refusal("a: &x 1\n---\nb: *x")


def test_merge_keys_fill_what_the_mapping_does_not_say() -> None:
    bases = "base: &b {x: 1, y: 2}\nmore: &m {y: 3, z: 4}\n"
    (value,) = values(bases + "one: {<<: *b, x: 9}\ntwo: {<<: [*b, *m]}\nthree: {<<: *b, x: ~}")
    assert value["one"] == {"x": 9, "y": 2}  # type: ignore[index]
    assert value["two"] == {"x": 1, "y": 2, "z": 4}  # type: ignore[index]
    assert value["three"] == {"y": 2}  # type: ignore[index]


def test_a_quoted_merge_key_is_a_key() -> None:
    assert values('"<<": {a: 1}') == [{"<<": {"a": 1}}]


def test_merging_something_else_than_mappings_is_refused() -> None:
    assert "takes a mapping or a list of mappings" in refusal("a: {<<: 5}")


def test_an_alias_inside_what_it_repeats_is_refused() -> None:
    assert "is inside the value that it repeats" in refusal("&a [*a]")
    assert "is inside the value that it repeats" in refusal("x: &a 1\ny: &a {z: *a}")


def test_aliases_that_multiply_are_refused_before_they_are_expanded() -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert f"more than {REPEATED_MAX} values" in refusal("\n".join(levels))


def test_aliases_that_nest_count_as_nesting() -> None:
    chain = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 200)]
    assert "levels deep" in refusal("\n".join(chain))


# --- limits ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opening", ["[", "{a: ", '{"a":', "- ", "? ", '[{"a":', "[a, "])
def test_deep_nesting_is_refused_and_not_followed(opening: str) -> None:
    assert f"nested more than {DEPTH_MAX} levels deep" in refusal(opening * 100_000)


@pytest.mark.parametrize(("before", "after"), [('{"a":', "}"), ("[", "]")])
def test_nesting_up_to_the_limit_is_read_in_json_and_in_yaml(before: str, after: str) -> None:
    fits = before * DEPTH_MAX + "1" + after * DEPTH_MAX
    too_deep = before + fits + after
    assert values(fits) == values("--- " + fits) == [json.loads(fits)]
    assert "levels deep" in refusal(too_deep)
    assert "levels deep" in refusal("--- " + too_deep)


def test_input_beyond_the_size_limit_is_refused() -> None:
    assert "larger than 256 MiB" in refusal(b" " * (BYTES_MAX + 1))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: " + "9" * 5000, "more than 64 digits"),
        ("a: 9223372036854775808", "beyond 64 bits"),
        ('{"a": -9223372036854775809}', "beyond 64 bits"),
        ("a: 0x" + "f" * 5000, "more than 64 digits"),
        ('{"a": ' + "9" * 5000 + "}", "more than 64 digits"),
        ("a: .inf", "not a finite number"),
        ("a: -.INF", "not a finite number"),
        ("a: .nan", "not a finite number"),
        ("a: 1.0e+999", "not a finite number"),
        ('{"a": NaN}', "not a finite number"),
        ('{"a": -Infinity}', "not a finite number"),
        ('{"a": 1e999}', "not a finite number"),
    ],
)
def test_numbers_without_a_finite_short_value_are_refused(text: str, expected: str) -> None:
    assert expected in refusal(text)


# --- what is refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a: 1\nb: {c: 1, c: 2}", ["b.c: appears twice"]),
        ("8080: a\n'8080': b", ["8080: appears twice"]),
        ("a: 1\na:", ["a: appears twice"]),
        ('{"a": {"b": 1, "b": null}}', ['the key "b" appears twice']),
        ("? [a]\n: b", ["a list is not a key"]),
        ("? ~\n: b", ["null is not a key"]),
        ("a: !!binary aGk=", ["a: the tag !!binary"]),
        ("a: !!python/object/apply:os.system [ls]", ["the tag !!python/object/apply:os.system"]),
        ("a: !custom {b: 1}", ["the tag !custom"]),
        ("a: !!set {b}", ["the tag !!set"]),
        ("a: !!timestamp 2026-11-16", ["the tag !!timestamp"]),
        ("a: !!str [x]", ["the tag !!str"]),
        ("a: !!int x", ['a: "x" does not match its tag']),
        ("a: b: c", ["document 1", "not YAML: line 1, column 5"]),
        ("a: 1\n---\nb: [", ["document 2", "not YAML: line"]),
        ("\ta: 1", ["not YAML"]),
        ('{"a": [1, 2}', ["neither JSON (line 1, column 12", "nor YAML (line 1"]),
        ("%YAML 3.0\n---\na: 1", ["incompatible"]),
        ("a: \x07", ["not YAML", "characters are not allowed"]),
        ('a: "\\0"', ["a: ", "contains a NUL character"]),
        ('{"a": ["\\u0000"]}', ["contains a NUL character"]),
        ('{"a": "\\ud800"}', ["half of a surrogate pair"]),
        ('{"\\udfff": 1}', ["half of a surrogate pair"]),
        (b"a\x00b", ["NUL character at offset 1"]),
        (b"a: \xff", ["not UTF-8 text: byte 0xff at offset 3"]),
        (b"\xed\xa0\x80", ["not UTF-8 text: byte 0xed"]),
        ("a: 1".encode("utf-16"), ["not UTF-8 but UTF-16"]),
        ("a: 1".encode("utf-32"), ["not UTF-8 but UTF-16 or UTF-32"]),
    ],
)
def test_each_refusal_says_what_and_where(text: str | bytes, parts: list[str]) -> None:
    message = refusal(text)
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    "bad", ['{"c": NaN}', '{"c": 1, "c": 2}', '{"c": ' + "[" * 80 + "]" * 80 + "}", '{"c": "\\u0000"}']
)
def test_a_refused_json_value_is_named_by_its_own_number(bad: str) -> None:
    assert refusal(f'{{"a": 1}}\n{{"b": 2}}\n{bad}').startswith("in.yaml: document 3: ")


def test_many_merged_or_repeated_keys_take_linear_time() -> None:
    merged = ", ".join(f"{{k{n}: 1}}" for n in range(20_000))
    (value,) = values(f"<<: [{merged}]")
    assert len(value) == 20_000  # type: ignore[arg-type]
    keys = ", ".join(f'"k{n}": 1' for n in range(20_000))
    assert '"k19999" appears twice' in refusal(f'{{{keys}, "k19999": 2}}')
