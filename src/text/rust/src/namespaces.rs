//! Keeps namespaces of a template from holding themselves. `{% set ns.x = ns %}` makes a value that minijinja
//! prints and compares without end. Namespaces are therefore only what templates use them for: a name that is
//! set to `namespace(...)`, and its attributes.

#[derive(Clone, Copy, PartialEq)]
enum Token<'a> {
    Name(&'a str),
    Mark(u8),
    Text,
}

/// An error where a namespace is used as a value, or made in a place where that cannot be seen.
pub fn check_namespaces(source: &str) -> Result<(), String> {
    let tags = tags(source);
    let is_creation = |tag: &[Token], at: usize| {
        at == 3
            && tag[0] == Token::Name("set")
            && matches!(tag[1], Token::Name(_))
            && tag[2] == Token::Mark(b'=')
            && is_one_call(&tag[4..])
    };
    let mut names = Vec::new();
    for tag in &tags {
        for (at, token) in tag.iter().enumerate() {
            if *token != Token::Name("namespace") || is_attribute_or_keyword(tag, at) {
                continue;
            }
            if !is_creation(tag, at) {
                return Err("unsupported: namespace() other than in {% set NAME = namespace(...) %}".to_string());
            }
            if let Token::Name(name) = tag[1] {
                names.push(name);
            }
        }
    }
    for tag in &tags {
        for (at, token) in tag.iter().enumerate() {
            let Token::Name(name) = *token else { continue };
            if !names.contains(&name) || is_attribute_or_keyword(tag, at) {
                continue;
            }
            let is_set = at == 1 && tag[0] == Token::Name("set") && tag.get(2) == Some(&Token::Mark(b'='));
            if !is_set && !matches!(tag.get(at + 1), Some(Token::Mark(b'.' | b'['))) {
                return Err(format!("unsupported: the namespace {name} used as a value"));
            }
        }
    }
    Ok(())
}

/// Whether `rest`, up to the sign of white space control, is one pair of parentheses.
fn is_one_call(rest: &[Token]) -> bool {
    let end = rest.len() - usize::from(matches!(rest.last(), Some(Token::Mark(b'-' | b'+'))));
    let mut depth = 0;
    for (at, token) in rest[..end].iter().enumerate() {
        match token {
            Token::Mark(b'(') => depth += 1,
            Token::Mark(b')') => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at > 0 && at + 1 == end;
        }
    }
    false
}

/// `x.name`, or the keyword of an argument: `f(name=...)`.
fn is_attribute_or_keyword(tag: &[Token], at: usize) -> bool {
    let before = at.checked_sub(1).map(|i| tag[i]);
    before == Some(Token::Mark(b'.'))
        || (matches!(before, Some(Token::Mark(b'(' | b',')))
            && tag.get(at + 1) == Some(&Token::Mark(b'='))
            && tag.get(at + 2) != Some(&Token::Mark(b'=')))
}

/// The tokens of each `{{ }}` and `{% %}`, cut as minijinja's lexer cuts: an end counts outside of strings and
/// brackets only; comments and raw blocks hold no tags.
fn tags(source: &str) -> Vec<Vec<Token<'_>>> {
    let bytes = source.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(open) = find(bytes, at, b"{") {
        at = open + 2;
        let end: &[u8] = match bytes.get(open + 1) {
            Some(b'#') => {
                at = find(bytes, at, b"#}").map_or(bytes.len(), |i| i + 2);
                continue;
            }
            Some(b'{') => b"}}",
            Some(b'%') => b"%}",
            _ => {
                at = open + 1;
                continue;
            }
        };
        let (tag, next) = read_tag(source, at, end);
        at = next;
        let is_raw = end == b"%}" && tag.iter().find(|t| !matches!(t, Token::Mark(b'-' | b'+'))) == Some(&Token::Name("raw"));
        if is_raw {
            at = end_of_raw(source, at);
        }
        // The sign of white space control is no part of the statement.
        let skip = usize::from(matches!(tag.first(), Some(Token::Mark(b'-' | b'+'))));
        out.push(tag[skip..].to_vec());
    }
    out
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    bytes.get(from..)?.windows(what.len()).position(|w| w == what).map(|i| i + from)
}

fn read_tag<'a>(source: &'a str, from: usize, end: &[u8]) -> (Vec<Token<'a>>, usize) {
    let bytes = source.as_bytes();
    let mut tag = Vec::new();
    let mut depth = 0i64;
    let mut at = from;
    while at < bytes.len() {
        let c = bytes[at];
        if depth == 0 && bytes[at..].starts_with(end) {
            return (tag, at + 2);
        }
        match c {
            b'"' | b'\'' => {
                at += 1;
                while at < bytes.len() && bytes[at] != c {
                    at += 1 + usize::from(bytes[at] == b'\\');
                }
                at += 1;
                tag.push(Token::Text);
                continue;
            }
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth -= 1,
            _ => {}
        }
        let is_name = |c: u8| c.is_ascii_alphanumeric() || c == b'_' || c >= 0x80;
        if is_name(c) {
            let start = at;
            while at < bytes.len() && is_name(bytes[at]) {
                at += 1;
            }
            tag.push(Token::Name(&source[start..at]));
            continue;
        }
        if !c.is_ascii_whitespace() {
            tag.push(Token::Mark(c));
        }
        at += 1;
    }
    (tag, bytes.len())
}

/// Behind the `{% endraw %}` after `from`.
fn end_of_raw(source: &str, from: usize) -> usize {
    let mut at = from;
    while let Some(open) = find(source.as_bytes(), at, b"{%") {
        at = open + 2;
        let body = source[at..].strip_prefix(['-', '+']).unwrap_or(&source[at..]);
        let Some(rest) = body.trim_start().strip_prefix("endraw") else { continue };
        let rest = rest.trim_start();
        let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
        if let Some(rest) = rest.strip_prefix("%}") {
            return source.len() - rest.len();
        }
    }
    source.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_ways_pass_and_values_do_not() {
        for good in [
            "{% set ns = namespace(a=1) %}{% set ns.a = ns.b[0] + ns['c'] %}{{ ns.a }}{% if x.ns %}{% endif %}",
            "{%- set ns = namespace() -%}{{ f(ns=1) }} ns namespace {# {{ ns }} #}{{ 'namespace ns' }}",
            "{% raw %}{{ ' ns }}{% endraw %}{% set ns = namespace() %}{{ ns.x }}",
        ] {
            assert_eq!(check_namespaces(good), Ok(()), "{good}");
        }
        for bad in [
            "{% set ns = namespace() %}{% set ns.x = ns %}",
            "{% set ns = namespace() %}{{ [ns] }}",
            "{% set ns = namespace() %}{{ {'a': {'b': '}}'}} }}{{ ns }}",
            "{% raw %}{{ ' {%- endraw -%}{% set ns = namespace() %}{{ ns }}",
            "{{ '{#' }}{% set ns = namespace() %}{{ ns }}{{ '#}' }}",
            "{% set f = namespace %}",
            "{% set f = namespace() or 1 %}",
            "{% set a = [namespace()] %}",
            "{% set ns = namespace() %}{% for ns in [1] %}{% endfor %}",
            "{% set a = namespace(x=namespace()) %}",
        ] {
            assert!(check_namespaces(bad).is_err(), "{bad}");
        }
    }
}
