//! Reads Rust sources as text: what is code, what is shipped, what is imported.

/// Blanks comments, strings and characters, and keeps every line break.
pub fn code_of(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let before = at.checked_sub(1).map(|i| bytes[i]);
        let in_word = before.is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_');
        let end = if rest.starts_with(b"//") {
            at + rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len())
        } else if rest.starts_with(b"/*") {
            at + end_of_block_comment(rest)
        } else if let Some(length) = (!in_word).then(|| raw_string(rest)).flatten() {
            at + length
        } else if rest[0] == b'"' {
            at + quoted(rest, b'"')
        } else if rest[0] == b'\'' && is_character(rest) {
            at + quoted(rest, b'\'')
        } else {
            at += 1;
            continue;
        };
        for byte in &mut out[at..end] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = end;
    }
    String::from_utf8(out).unwrap()
}

fn end_of_block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The length of a raw string that begins here, `r"…"` or `br##"…"##`.
fn raw_string(rest: &[u8]) -> Option<usize> {
    let prefix = usize::from(matches!(rest[0], b'b' | b'c'));
    if rest.get(prefix) != Some(&b'r') {
        return None;
    }
    let hashes = rest[prefix + 1..]
        .iter()
        .take_while(|&&b| b == b'#')
        .count();
    let open = prefix + 1 + hashes;
    if rest.get(open) != Some(&b'"') {
        return None;
    }
    let close: Vec<u8> = std::iter::once(b'"')
        .chain(std::iter::repeat_n(b'#', hashes))
        .collect();
    let body = &rest[open + 1..];
    let length = body.windows(close.len()).position(|window| window == close);
    Some(length.map_or(rest.len(), |length| open + 1 + length + close.len()))
}

fn quoted(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != quote {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(rest.len())
}

/// Whether `'` begins a character and not a lifetime.
fn is_character(rest: &[u8]) -> bool {
    match rest.get(1) {
        Some(b'\\') => true,
        Some(first) => {
            let width = match first {
                0..0x80 => 1,
                0x80..0xe0 => 2,
                0xe0..0xf0 => 3,
                _ => 4,
            };
            rest.get(1 + width) == Some(&b'\'')
        }
        None => false,
    }
}

/// Blanks `#[cfg(test)] mod … { … }` and its relatives, and `#[cfg(loom)]` ones.
pub fn without_test_modules(code: &str) -> String {
    let mut out = code.to_owned();
    let mut from = 0;
    while let Some(found) = out[from..].find("#[cfg(") {
        let start = from + found;
        let attribute_end = start + out[start..].find(']').unwrap_or(0) + 1;
        let attribute = &out[start..attribute_end];
        let about_tests = words(attribute, "test").next().is_some() || attribute == "#[cfg(loom)]";
        let after = out[attribute_end..].trim_start();
        from = attribute_end;
        if !about_tests || !is_module(after) {
            continue;
        }
        let module = out.len() - after.len();
        let Some(open) = out[module..].find(['{', ';']) else {
            continue;
        };
        if out.as_bytes()[module + open] == b';' {
            continue;
        }
        let end = module + open + matching_brace(&out[module + open..]);
        let blank: String = out[start..end]
            .chars()
            .map(|c| if c == '\n' { '\n' } else { ' ' })
            .collect();
        out.replace_range(start..end, &blank);
    }
    out
}

/// Whether an item is a module, public or not.
fn is_module(item: &str) -> bool {
    let item = match item.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => &rest[rest.find(')').map_or(0, |at| at + 1)..],
        Some(rest) => rest,
        None => item,
    };
    item.trim_start().starts_with("mod ")
}

/// The length of a `{ … }` that begins here.
fn matching_brace(code: &str) -> usize {
    let mut depth = 0;
    for (at, byte) in code.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 1 => return at + 1,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

pub fn line_of(code: &str, at: usize) -> usize {
    1 + code[..at].matches('\n').count()
}

/// Where `word` stands as a word of its own.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |&at| {
            !code[..at].ends_with(is_part) && !code[at + word.len()..].starts_with(is_part)
        })
}

/// The modules that `crate::x` and `crate::{x::…, y::…}` name, with positions.
pub fn imports(code: &str) -> Vec<(usize, String)> {
    let identifier = |text: &str| -> String {
        text.chars()
            .take_while(|c| c.is_alphanumeric() || *c == '_')
            .collect()
    };
    let mut found = Vec::new();
    // `$crate::x` is what a macro of ours says in the crate of who calls it.
    for at in words(code, "crate").filter(|&at| !code[..at].ends_with('$')) {
        let Some(rest) = code[at + "crate".len()..].strip_prefix("::") else {
            continue;
        };
        let Some(group) = rest.strip_prefix('{') else {
            found.push((at, identifier(rest)));
            continue;
        };
        // The first name after `{` and after each comma that is not nested.
        let inside = &group[..matching_brace(rest).saturating_sub(2).min(group.len())];
        let (mut depth, mut start) = (0_usize, 0);
        for (i, c) in inside.char_indices().chain([(inside.len(), ',')]) {
            match c {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                ',' if depth == 0 => {
                    let name = identifier(inside[start..i].trim_start());
                    if !name.is_empty() {
                        found.push((at, name));
                    }
                    start = i + 1;
                }
                _ => {}
            }
        }
    }
    found
}

#[test]
fn the_reader_of_sources_knows_code_from_comments() {
    let text = "let a = \"// crate::task\"; // crate::time\nlet b = r#\"crate::io\"#; let c = '\"';\n\
                /* crate::net /* */ crate::fs */ use crate::{util::{rng, list}, sys};\nfn f<'a>() {}";
    let code = code_of(text);
    assert_eq!(code.len(), text.len());
    let found: Vec<String> = imports(&code)
        .into_iter()
        .map(|(_, module)| module)
        .collect();
    assert_eq!(found, ["util", "sys"]);
    let module = "#[cfg(test)]\nmod tests { use crate::task; }\nuse crate::wait;";
    let found = imports(&without_test_modules(module));
    assert_eq!(found.len(), 1);
    assert_eq!(line_of(module, found[0].0), 3);
}
