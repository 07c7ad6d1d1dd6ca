//! Chat templates: Jinja as the transformers library runs it, with limits on steps, depth and output.

use minijinja::value::{Kwargs, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind};
use std::io::Write;
use std::sync::Arc;

use crate::deep::on_deep_stack;
use crate::namespaces::check_namespaces;

const NAME: &str = "chat_template";
const MAX_DEPTH: usize = 100;

pub struct ChatTemplate {
    environment: Arc<Environment<'static>>,
    max_levels: usize,
    max_output: usize,
}

impl ChatTemplate {
    pub fn new(source: &str, max_steps: u64, max_output: usize) -> Result<Self, String> {
        check_namespaces(source)?;
        let mut environment = Environment::new();
        let syntax = minijinja::syntax::SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(describe)?;
        environment.set_syntax(syntax);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.set_fuel(Some(max_steps));
        environment.set_recursion_limit(MAX_DEPTH);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment.add_filter("tojson", to_json);
        let source = without_generation_blocks(source);
        // Each byte may be a link of a chain.
        let environment = on_deep_stack(source.len(), move || {
            environment.add_template_owned(NAME, source).map_err(describe)?;
            Ok(environment)
        })?;
        // A level of a value costs the step that makes it and half a one for its slot.
        let max_levels = usize::try_from(max_steps / 3 * 2).unwrap_or(usize::MAX);
        Ok(ChatTemplate { environment: Arc::new(environment), max_levels, max_output })
    }

    pub fn render(
        &self,
        messages: &[(&str, &str)],
        add_generation_prompt: bool,
        bos: &str,
        eos: &str,
    ) -> Result<String, String> {
        let messages: Vec<Value> = messages
            .iter()
            .map(|(role, content)| Value::from_pairs([("role", *role), ("content", *content)]))
            .collect();
        let context = Value::from_pairs([
            ("messages", Value::from(messages)),
            ("add_generation_prompt", Value::from(add_generation_prompt)),
            ("bos_token", Value::from(bos)),
            ("eos_token", Value::from(eos)),
            ("tools", Value::from(())),
            ("documents", Value::from(())),
        ]);
        let environment = Arc::clone(&self.environment);
        let limit = self.max_output;
        on_deep_stack(self.max_levels, move || {
            let mut out = Limited { bytes: Vec::new(), limit, over: false };
            let template = environment.get_template(NAME).map_err(describe)?;
            let outcome = template.render_captured_to(context, &mut out).map(|_| ());
            if out.over {
                return Err(format!("the output is longer than {limit} bytes"));
            }
            outcome.map_err(describe)?;
            String::from_utf8(out.bytes).map_err(|e| e.to_string())
        })
    }
}

struct Limited {
    bytes: Vec<u8>,
    limit: usize,
    over: bool,
}

impl Write for Limited {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        if data.len() > self.limit - self.bytes.len() {
            self.over = true;
            return Err(std::io::Error::other("output limit"));
        }
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn describe(error: Error) -> String {
    let mut text = match (error.line(), error.detail()) {
        (Some(line), Some(detail)) => format!("line {line}: {}: {detail}", error.kind()),
        (Some(line), None) => format!("line {line}: {}", error.kind()),
        (None, Some(detail)) => format!("{}: {detail}", error.kind()),
        (None, None) => error.kind().to_string(),
    };
    let mut source = std::error::Error::source(&error);
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// The tags `{% generation %}` and `{% endgeneration %}` mark the assistant's tokens for training and print
/// nothing: they become a condition that always holds, with the same control of white space.
fn without_generation_blocks(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find("{%") {
        let (before, tag) = rest.split_at(open);
        out.push_str(before);
        let body_start = if tag[2..].starts_with(['-', '+']) { 3 } else { 2 };
        let body = &tag[body_start..];
        let word = body.trim_start();
        let replaced = [("generation", " if true "), ("endgeneration", " endif ")].into_iter().find_map(|(name, new)| {
            let after = word.strip_prefix(name)?.trim_start();
            (after.starts_with("%}") || after.starts_with("-%}") || after.starts_with("+%}")).then_some((new, after))
        });
        out.push_str(&tag[..body_start]);
        rest = match replaced {
            Some((new, after)) => {
                out.push_str(new);
                after
            }
            None => body,
        };
    }
    out.push_str(rest);
    out
}

/// Python's json.dumps(value, ensure_ascii=False, indent=indent): unlike Jinja's own filter it does not escape
/// for HTML, which is what the transformers library uses and models were trained on.
fn to_json(value: Value, kwargs: Kwargs) -> Result<String, Error> {
    let indent: Option<usize> = kwargs.get("indent")?;
    let _ensure_ascii: Option<bool> = kwargs.get("ensure_ascii")?;
    kwargs.assert_all_used()?;
    let mut out = String::new();
    write_json(&mut out, &value, indent.map(|n| n.min(16)), 0)?;
    Ok(out)
}

fn write_json(out: &mut String, value: &Value, indent: Option<usize>, depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "tojson: the value is nested too deeply"));
    }
    let line = |out: &mut String, depth: usize| {
        if let Some(width) = indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', width * depth));
        }
    };
    let comma = if indent.is_some() { "," } else { ", " };
    match value.kind() {
        ValueKind::Undefined | ValueKind::None => out.push_str("null"),
        ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
        ValueKind::Number => out.push_str(&value.to_string()),
        ValueKind::String => write_json_string(out, value.as_str().unwrap_or_default()),
        ValueKind::Map => {
            out.push('{');
            let mut empty = true;
            for key in value.try_iter()? {
                if !empty {
                    out.push_str(comma);
                }
                empty = false;
                line(out, depth + 1);
                write_json_string(out, &key.to_string());
                out.push_str(": ");
                write_json(out, &value.get_item(&key)?, indent, depth + 1)?;
            }
            if !empty {
                line(out, depth);
            }
            out.push('}');
        }
        ValueKind::Seq | ValueKind::Iterable => {
            out.push('[');
            let mut empty = true;
            for item in value.try_iter()? {
                if !empty {
                    out.push_str(comma);
                }
                empty = false;
                line(out, depth + 1);
                write_json(out, &item, indent, depth + 1)?;
            }
            if !empty {
                line(out, depth);
            }
            out.push(']');
        }
        kind => {
            return Err(Error::new(ErrorKind::InvalidOperation, format!("tojson: cannot write a value of kind {kind}")))
        }
    }
    Ok(())
}

fn write_json_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// strftime of the present time in UTC: %Y %m %d %b %B %a %A %y %j %H %M %S %% and %-d, %-m, %-H.
fn strftime_now(format: &str) -> Result<String, Error> {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.as_secs());
    strftime(format, now)
}

fn strftime(format: &str, unix_seconds: u64) -> Result<String, Error> {
    const MONTHS: [&str; 12] = [
        "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
        "November", "December",
    ];
    const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];
    let (days, seconds) = (unix_seconds / 86400, unix_seconds % 86400);
    let is_leap = |y: u64| (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
    let (mut year, mut day_of_year) = (1970, days);
    while day_of_year >= 365 + u64::from(is_leap(year)) {
        day_of_year -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let (mut month, mut day) = (0, day_of_year);
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    let weekday = DAYS[(days % 7) as usize];
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let mut code = chars.next().unwrap_or('%');
        let padded = code != '-';
        if !padded {
            code = chars.next().unwrap_or('%');
        }
        let two = |n: u64| if padded { format!("{n:02}") } else { n.to_string() };
        out.push_str(&match code {
            'Y' => year.to_string(),
            'y' => two(year % 100),
            'm' => two(month as u64 + 1),
            'd' => two(day + 1),
            'j' => format!("{:03}", day_of_year + 1),
            'b' => MONTHS[month][..3].to_string(),
            'B' => MONTHS[month].to_string(),
            'a' => weekday[..3].to_string(),
            'A' => weekday.to_string(),
            'H' => two(seconds / 3600),
            'M' => two(seconds / 60 % 60),
            'S' => two(seconds % 60),
            '%' => "%".to_string(),
            other => {
                let text = format!("strftime_now: %{other} is not supported");
                return Err(Error::new(ErrorKind::InvalidOperation, text));
            }
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Whether these are refused or rendered is the engine's choice; the stack must hold, also in a build without
    // optimisation.
    #[test]
    fn the_longest_chains_and_the_deepest_values_fit_the_stack() {
        let mut sources = Vec::new();
        for (before, link, after) in [
            ("{{ ", "-", "1 }}"),
            ("{{ ", "not ", "1 }}"),
            ("{{ 1", "+1", " }}"),
            ("{{ a", "()", " }}"),
            ("{{ a", ".a", " }}"),
            ("{{ a", "|a", " }}"),
            ("{{ [1]", "|list", "|length }}"),
            ("{{ 1", "if 1", " }}"),
        ] {
            let num_links = ((128 << 10) - before.len() - after.len()) / link.len();
            sources.push((format!("{before}{}{after}", link.repeat(num_links)), 1_000_000));
        }
        for (open, close) in [("[", "]"), ("{'a':", "}")] {
            // 30 brackets, since minijinja refuses to parse 150; as many rounds as the steps allow, or as leave
            // some for what is done with the value.
            let value = format!("{}ns.x{}", open.repeat(30), close.repeat(30));
            for num_rounds in [7_000, 12_000, 30_000] {
                for end in ["ns.x|string|length", "ns.x == ns.x"] {
                    let source = format!(
                        "{{% set ns = namespace(x=1) %}}{{% for i in range({num_rounds}) %}}\
                         {{% set ns.x = {value} %}}{{% endfor %}}{{{{ {end} }}}}"
                    );
                    sources.push((source, 1_000_000));
                }
            }
        }
        // Steps of a caller's own, enough for 750,000 levels.
        let value = format!("{}ns.x{}", "[".repeat(30), "]".repeat(30));
        let many = format!(
            "{{% set ns = namespace(x=1) %}}{{% for i in range(25000) %}}{{% set ns.x = {value} %}}{{% endfor %}}\
             {{{{ ns.x|string|length }}}}"
        );
        sources.push((many, 2_500_000));
        for (source, max_steps) in sources {
            if let Ok(template) = ChatTemplate::new(&source, max_steps, 4 << 20) {
                let _ = template.render(&[("user", "a")], true, "", "");
            }
        }
    }

    #[test]
    fn strftime_knows_leap_years() {
        assert_eq!(strftime("%d %b %Y %A %j", 1_709_164_800).unwrap(), "29 Feb 2024 Thursday 060");
        assert_eq!(strftime("%-d/%-m/%y %H:%M:%S", 1_735_689_599).unwrap(), "31/12/24 23:59:59");
    }
}
