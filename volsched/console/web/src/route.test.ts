import { expect, test } from "vitest";
import { clock } from "./format";
import { parsePlace, placeText } from "./route";

test("an address leads back to the place that it was made of", () => {
  const [rest, query] = [["shop", "50%/a"], { at: "7", text: "a&b" }];
  expect(parsePlace(placeText("pod", rest, query))).toEqual({ page: "pod", rest, query });
});

test("an address that was cut or typed wrong is a place too", () => {
  expect(parsePlace("#/pod/%")).toEqual({ page: "pod", rest: ["%"], query: {} });
  expect(parsePlace("#/volume/a%2Fb/%E0%A4")).toMatchObject({ rest: ["a/b", "%E0%A4"] });
});

test("what is no time is a dash, and not the end of the page", () => {
  expect(clock(NaN)).toBe("–");
  expect(clock(0)).toBe("1970-01-01 00:00:00");
});
