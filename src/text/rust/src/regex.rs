//! The patterns of pre-tokenizers: all matches of one pattern, left to right.

pub struct Pattern(fancy_regex::Regex);

impl Pattern {
    pub fn new(pattern: &str) -> Result<Self, String> {
        // The limit counts steps back of one match; it is bounded by the text for patterns of pre-tokenizers.
        // One that still explodes ends with an error.
        fancy_regex::RegexBuilder::new(pattern)
            .backtrack_limit(100_000_000)
            .build()
            .map(Pattern)
            .map_err(|e| e.to_string())
    }

    /// Start and end of each match, empty matches left out.
    pub fn find_all(&self, text: &str) -> Result<Vec<u64>, String> {
        let mut found = Vec::new();
        for range in self.0.find_iter(text) {
            let range = range.map_err(|e| e.to_string())?;
            if range.start() < range.end() {
                found.push(range.start() as u64);
                found.push(range.end() as u64);
            }
        }
        Ok(found)
    }
}
