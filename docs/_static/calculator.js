// The calculator of "Choosing a format": how many ids until a collision is likely, and what an id contains.
// Nothing that is typed here leaves the page.

const ALPHABETS = {
  "0-9 a-z": "0123456789abcdefghijklmnopqrstuvwxyz",
  "0-9 A-Z a-z": "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
  "Base58": "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz",
  "0-9 A-Z a-z _ -": "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_-",
  "Crockford": "0123456789ABCDEFGHJKMNPQRSTVWXYZ",
  "0-9": "0123456789",
};
const HOURS_A_YEAR = 24 * 365.25;

// --- arithmetic: the birthday problem, in the natural logarithm of the number of possible ids

export function idsAt(chance, size, length) {
  const space = length * Math.log(size);
  return Math.exp((Math.log(2) + space + Math.log(-Math.log1p(-chance))) / 2);
}

export function probability(ids, size, length) {
  return -Math.expm1(-Math.exp(2 * Math.log(ids) - Math.log(2) - length * Math.log(size)));
}

// --- ids

function fromDigits(text, digits) {
  let number = 0n;
  for (const character of text) number = number * BigInt(digits.length) + BigInt(digits.indexOf(character));
  return number;
}

function time(milliseconds) {
  const date = new Date(Number(milliseconds));
  return Number.isNaN(date.getTime()) ? null : date.toISOString();
}

export function inspect(id) {
  const at = id.lastIndexOf("_");
  const prefix = at > 0 ? id.slice(0, at) : "", body = id.slice(at > 0 ? at + 1 : 0);
  const facts = [];
  const plain = body.replaceAll("-", "");
  if (/^[0-9a-f]{32}$/i.test(plain) && [32, 36].includes(body.length)) {
    const version = plain[12];
    facts.push([`UUID, version ${version}`, version === "7" ? time(BigInt(`0x${plain.slice(0, 12)}`)) : null]);
  }
  if (/^[0-7][0-9a-hjkmnp-tv-z]{25}$/.test(body)) {
    const number = fromDigits(body, "0123456789abcdefghjkmnpqrstvwxyz");
    const isVersion7 = ((number >> 76n) & 15n) === 7n;
    facts.push(["TypeID", isVersion7 ? time(number >> 80n) : null]);
  }
  if (/^[0-7][0-9A-HJKMNP-TV-Z]{25}$/.test(body)) facts.push(["ULID", time(fromDigits(body, ALPHABETS.Crockford) >> 80n)]);
  if (/^[0-9A-Za][0-9A-Za-z]{26}$/.test(body)) {
    const number = fromDigits(body, ALPHABETS["0-9 A-Z a-z"]);
    if (!(number >> 160n)) facts.push(["KSUID", time(((number >> 128n) + 1400000000n) * 1000n)]);
  }
  if (/^[0-9a-f]{24}$/.test(body)) facts.push(["ObjectId", time(BigInt(`0x${body.slice(0, 8)}`) * 1000n)]);
  if (/^[0-9a-z]{25}$/.test(body)) {
    const number = fromDigits(body, ALPHABETS["0-9 a-z"]);
    const version = number >> 128n ? null : (number >> 76n) & 15n;
    if (version === 7n) facts.push(["Uuid7", time(number >> 80n)]);
    if (version === 4n) facts.push(["Uuid4", null]);
  }
  if (/^[0-9a-z]+$/.test(body) && body.length <= 21) facts.push([`NanoId of ${body.length} characters`, null]);
  return { prefix, body, facts };
}

// --- the page

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

const COMPACT = new Intl.NumberFormat("en", { notation: "compact", compactDisplay: "long", maximumSignificantDigits: 3 });

export function round(number) {
  if (number >= 1e15 || (number > 0 && number < 1e-3)) return number.toExponential(1).replace("e+", " × 10^").replace("e-", " × 10^-");
  return COMPACT.format(number);
}

function field(label, input) {
  return element("label", {}, label, input);
}

function table(rows) {
  const body = rows.map((row) => element("tr", {}, ...row.map((text) => element("td", { textContent: text }))));
  return element("table", {}, element("tbody", {}, ...body));
}

function build(place) {
  const alphabet = element("select", { name: "alphabet" }, ...Object.keys(ALPHABETS).map((name) => element("option", { textContent: name })));
  const length = element("input", { name: "length", type: "number", min: 1, max: 64, value: 12 });
  const rate = element("input", { name: "rate", type: "number", min: 1, value: 1000 });
  const prefix = element("input", { name: "prefix", value: "", placeholder: "cus", maxLength: 20 });
  const id = element("input", { name: "id", placeholder: "an id", spellcheck: false });
  const result = element("div", { className: "result" }), inspected = element("div", { className: "inspected" });

  function calculate() {
    const size = ALPHABETS[alphabet.value].length, characters = Number(length.value), hourly = Number(rate.value);
    if (!(characters >= 1 && characters <= 64 && hourly > 0)) return result.replaceChildren("A length from 1 to 64, and a rate above 0.");
    const years = (ids) => round(ids / hourly / HOURS_A_YEAR);
    const bytes = characters + (prefix.value ? prefix.value.length + 1 : 0);
    const rows = [0.01, 0.5].map((chance) => {
      const ids = idsAt(chance, size, characters);
      return [`a collision with a chance of ${chance * 100} %`, `after ${round(ids)} ids, ${years(ids)} years`];
    });
    const inTen = probability(hourly * HOURS_A_YEAR * 10, size, characters);
    rows.push(["the chance of any in ten years", inTen > 0.9999 ? "certain" : `${round(inTen * 100)} %`]);
    rows.push(["random bits", (characters * Math.log2(size)).toFixed(1)]);
    rows.push(["storage as text, in the table and again in its index", `${bytes} bytes`]);
    result.replaceChildren(table(rows));
  }

  function show() {
    const { prefix: found, body, facts } = inspect(id.value.trim());
    if (!body) return inspected.replaceChildren();
    const rows = [["prefix", found || "none"], ["characters", String(body.length)]];
    rows.push(...facts.map(([name, moment]) => [`can be: ${name}`, moment ? `made at ${moment}` : ""]));
    if (!facts.length) rows.push(["can be", "no format that is known here"]);
    inspected.replaceChildren(table(rows));
  }

  const form = element("form", {}, field("Characters", length), field("Alphabet", alphabet), field("Ids an hour", rate), field("Prefix", prefix));
  const other = element("form", {}, field("Inspect an id", id));
  for (const each of [form, other]) each.addEventListener("submit", (event) => event.preventDefault());
  for (const happening of ["input", "change"]) form.addEventListener(happening, calculate);
  other.addEventListener("input", show);
  place.replaceChildren(form, result, other, inspected);
  calculate();
}

const place = document.querySelector("#calculator");
if (place) build(place);
