//! `--svg`: a bar chart. Each row has its own scale, since a yield and a
//! million sleepers share none; shorter is better everywhere.

use std::fmt::Write;

use super::report::{Cell, Row};
use super::rival::Rival;
use super::workload::digits;

const WIDTH: f64 = 760.0;
/// Where bars begin, and how long the longest is.
const LEFT: f64 = 90.0;
const LONGEST: f64 = 480.0;
const BAR: f64 = 16.0;
const GAP: f64 = 4.0;
const TITLE: f64 = 26.0;

/// One group of bars for each row that compares.
pub fn render(rows: &[Row]) -> String {
    let rows: Vec<&Row> = rows
        .iter()
        .filter(|row| row.figure.compare && bars(row).len() > 1)
        .collect();
    let mut body = String::new();
    let mut y = 8.0;
    for row in rows {
        y = group(&mut body, row, y);
    }
    let height = y + 8.0;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
         <title>sinew bench: shorter is better</title>\n\
         <style>\n\
         text {{ fill: #1f2328 }} .title {{ font-weight: 600 }} .bar {{ fill: #8c959f }}\n\
         .sinew {{ fill: #0969da }} .raw {{ fill: #d0d7de }} .back {{ fill: #ffffff }}\n\
         @media (prefers-color-scheme: dark) {{\n\
         text {{ fill: #e6edf3 }} .bar {{ fill: #6e7681 }} .sinew {{ fill: #58a6ff }}\n\
         .raw {{ fill: #30363d }} .back {{ fill: #0d1117 }} }}\n\
         </style>\n\
         <rect class=\"back\" width=\"100%\" height=\"100%\"/>\n{body}</svg>\n"
    )
}

/// Who has a bar in this row, and how long in its own unit; None for `dies`.
fn bars(row: &Row) -> Vec<(Rival, Option<f64>)> {
    row.cells
        .iter()
        .filter(|(_, cell)| *cell != Cell::Absent)
        .map(|(rival, cell)| (*rival, cell.median()))
        .collect()
}

/// Draws one row at `y` and answers where the next one begins.
fn group(body: &mut String, row: &Row, y: f64) -> f64 {
    let plural = if row.workers == 1 { "" } else { "s" };
    let title = format!(
        "{} · {} · {} worker{plural}",
        row.title(),
        row.figure.title,
        row.workers
    );
    let _ = writeln!(
        body,
        "<text class=\"title\" x=\"8\" y=\"{}\">{}</text>",
        y + 16.0,
        escape(&title)
    );
    let mut y = y + TITLE;
    let bars = bars(row);
    let most = bars
        .iter()
        .filter_map(|(_, value)| *value)
        .fold(0.0, f64::max);
    for (rival, value) in bars {
        let (length, label) = match value {
            None => (0.0, "dies".to_owned()),
            Some(value) => {
                let length = if most > 0.0 {
                    value.max(0.0) / most * LONGEST
                } else {
                    0.0
                };
                let label = row.figure.unit.show(value);
                match row.ratio(rival) {
                    Some(ratio) if rival != Rival::Sinew => {
                        (length, format!("{label} ({}×)", digits(ratio)))
                    }
                    _ => (length, label),
                }
            }
        };
        let class = match rival {
            Rival::Sinew => "sinew",
            Rival::Raw => "raw",
            _ => "bar",
        };
        let base = y + BAR - 4.0;
        // Writing to a String can't fail.
        let _ = writeln!(
            body,
            "<text x=\"{}\" y=\"{base}\" text-anchor=\"end\">{}</text>\
             <rect class=\"{class}\" x=\"{LEFT}\" y=\"{y}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"2\"/>\
             <text x=\"{:.1}\" y=\"{base}\">{}</text>",
            LEFT - 8.0,
            rival.name(),
            length.max(1.0),
            LEFT + length.max(1.0) + 6.0,
            escape(&label)
        );
        y += BAR + GAP;
    }
    y + 6.0
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::rows_of;
    use super::*;

    #[test]
    fn the_longest_bar_fills_the_width_and_others_are_in_proportion() {
        let rows = rows_of(
            "skynet_cold",
            2,
            &[
                (Rival::Sinew, "sinew", "ms", &[300.0]),
                (Rival::Go, "go", "ms", &[600.0]),
                (Rival::May, "may", "ms", &[]),
            ],
        );
        let text = render(&rows);
        assert!(
            text.contains("class=\"sinew\" x=\"90\" y=\"34\" width=\"240.0\""),
            "{text}"
        );
        assert!(text.contains("width=\"480.0\""));
        assert!(text.contains(">dies</text>"));
        assert!(text.contains("600 ms (0.50×)"));
        assert_eq!(text.matches("<rect class=\"bar\"").count(), 2);
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"));
    }

    #[test]
    fn a_row_with_one_bar_only_is_left_out() {
        let rows = rows_of(
            "timers_1m",
            1,
            &[(Rival::Sinew, "sinew", "insert_ns", &[9.0])],
        );
        assert!(!render(&rows).contains("timers"));
    }

    #[test]
    fn text_is_escaped() {
        assert_eq!(escape("a < b & c > d"), "a &lt; b &amp; c &gt; d");
    }
}
