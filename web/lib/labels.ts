// The API's codes as words: "not_polling" is read by programs, "not polling" by people.

/** A code of the API, such as a state or a reason, as people read it. Sentences stay as they are. */
export function humanize(code: string): string {
  return /^[a-z0-9_]+$/.test(code) ? code.replaceAll("_", " ") : code;
}

export function capitalize(words: string): string {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
