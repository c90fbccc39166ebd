//! The arguments of `#[sinew::main(…)]` and `#[sinew::test(…)]`: settings for the runtime's
//! builder.
//!
//! A setting is `name = expression` and becomes the builder call `.name(expression)`. Literals
//! are checked here, where the message can show what was expected; any other expression is left
//! to the type checker, which points at it since it keeps its place in the source.

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, ExprLit, Ident, Lit, Result, Token};

/// Every setting there is, with the value shown to those who got it wrong.
const KNOWN: [(&str, Value); 6] = [
    ("workers", Value::Integer),
    ("stack_size", Value::Integer),
    ("name", Value::Text),
    ("strict_order", Value::Flag),
    ("pin_workers", Value::Flag),
    (TIMEOUT, Value::Time),
];

/// The one setting that is not the builder's: how long a test may take.
const TIMEOUT: &str = "timeout";

/// The kind of value a setting takes.
#[derive(Clone, Copy)]
enum Value {
    Integer,
    Text,
    Flag,
    Time,
}

impl Value {
    fn accepts(self, literal: &Lit) -> bool {
        matches!(
            (self, literal),
            (Value::Integer, Lit::Int(_))
                | (Value::Text, Lit::Str(_))
                | (Value::Flag, Lit::Bool(_))
        )
    }

    fn wanted(self) -> (&'static str, &'static str) {
        match self {
            Value::Integer => ("an integer", "4"),
            Value::Text => ("a string", "\"proxy\""),
            Value::Flag => ("`true` or `false`", "true"),
            Value::Time => ("a `Duration`", "Duration::from_secs(5)"),
        }
    }
}

/// One `name = expression`.
struct Setting {
    name: Ident,
    value: Expr,
}

impl Parse for Setting {
    fn parse(input: ParseStream) -> Result<Self> {
        let name: Ident = input.parse()?;
        let Some((_, kind)) = KNOWN.into_iter().find(|(known, _)| name == known) else {
            let known: Vec<String> = KNOWN
                .iter()
                .map(|(known, _)| format!("`{known}`"))
                .collect();
            let message = format!(
                "unknown argument `{name}`, expected one of {}",
                known.join(", ")
            );
            return Err(Error::new(name.span(), message));
        };
        let (wanted, example) = kind.wanted();
        let complaint = format!("`{name}` takes {wanted}, as in `{name} = {example}`");

        if !input.peek(Token![=]) {
            return Err(Error::new(name.span(), complaint));
        }
        input.parse::<Token![=]>()?;
        if input.is_empty() || input.peek(Token![,]) {
            return Err(Error::new(name.span(), complaint));
        }
        let value: Expr = input.parse()?;
        if let Expr::Lit(ExprLit { lit, .. }) = &value {
            if !kind.accepts(lit) {
                return Err(Error::new(lit.span(), complaint));
            }
        }
        Ok(Setting { name, value })
    }
}

/// The settings given, in order.
pub(crate) struct Settings(Vec<Setting>);

impl Settings {
    /// Nothing was set.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How long a test may take, if that was set.
    pub(crate) fn timeout(&self) -> Option<&Expr> {
        let setting = self.0.iter().find(|setting| setting.name == TIMEOUT);
        setting.map(|setting| &setting.value)
    }

    /// Says that `main` has no limit of time, if one was set.
    pub(crate) fn refuse_timeout(&self) -> Result<()> {
        match self.0.iter().find(|setting| setting.name == TIMEOUT) {
            Some(setting) => Err(Error::new(
                setting.name.span(),
                "`timeout` is an argument of #[sinew::test]; here call sinew::timeout(..)",
            )),
            None => Ok(()),
        }
    }

    /// The builder calls: `.workers(2).name("x")`. If `workers` was not set, it is
    /// `default_workers` where there is one.
    pub(crate) fn builder_calls(&self, default_workers: Option<usize>) -> TokenStream {
        let mut calls = TokenStream::new();
        if let Some(workers) = default_workers {
            if !self.0.iter().any(|setting| setting.name == "workers") {
                calls.extend(quote!(.workers(#workers)));
            }
        }
        for Setting { name, value } in self.0.iter().filter(|setting| setting.name != TIMEOUT) {
            calls.extend(quote!(.));
            name.to_tokens(&mut calls);
            calls.extend(quote!((#value)));
        }
        calls
    }
}

impl Parse for Settings {
    fn parse(input: ParseStream) -> Result<Self> {
        let settings = Punctuated::<Setting, Token![,]>::parse_terminated(input)?;
        let settings: Vec<Setting> = settings.into_iter().collect();
        for (index, setting) in settings.iter().enumerate() {
            if settings[..index]
                .iter()
                .any(|earlier| earlier.name == setting.name)
            {
                return Err(Error::new(
                    setting.name.span(),
                    format!("`{}` is set twice", setting.name),
                ));
            }
        }
        Ok(Settings(settings))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(text: &str) -> String {
        let settings: Settings = syn::parse_str(text).unwrap();
        settings.builder_calls(None).to_string().replace(' ', "")
    }

    fn error(text: &str) -> String {
        match syn::parse_str::<Settings>(text) {
            Ok(_) => panic!("`{text}` was accepted"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn each_setting_becomes_a_builder_call_in_order() {
        assert_eq!(
            calls(
                "name = \"x\", workers = 2, pin_workers = true, strict_order = false, stack_size = 64 * KIB,"
            ),
            ".name(\"x\").workers(2).pin_workers(true).strict_order(false).stack_size(64*KIB)"
        );
        assert_eq!(calls(""), "");
    }

    #[test]
    fn default_workers_give_way_to_a_setting() {
        let with = |text| {
            let settings: Settings = syn::parse_str(text).unwrap();
            settings.builder_calls(Some(1)).to_string().replace(' ', "")
        };
        assert_eq!(with(""), ".workers(1usize)");
        assert_eq!(with("name = \"x\""), ".workers(1usize).name(\"x\")");
        assert_eq!(with("workers = 3"), ".workers(3)");
    }

    #[test]
    fn an_unknown_setting_is_answered_with_the_known_ones() {
        assert_eq!(
            error("worker_threads = 4"),
            "unknown argument `worker_threads`, expected one of `workers`, `stack_size`, `name`, `strict_order`, \
             `pin_workers`, `timeout`"
        );
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_answered_with_an_example() {
        assert_eq!(
            error("workers = \"4\""),
            "`workers` takes an integer, as in `workers = 4`"
        );
        assert_eq!(
            error("name = 4"),
            "`name` takes a string, as in `name = \"proxy\"`"
        );
        assert_eq!(
            error("strict_order = 1"),
            "`strict_order` takes `true` or `false`, as in `strict_order = true`"
        );
        assert_eq!(
            error("timeout = 5"),
            "`timeout` takes a `Duration`, as in `timeout = Duration::from_secs(5)`"
        );
    }

    #[test]
    fn a_missing_value_is_answered_with_an_example() {
        for text in [
            "pin_workers",
            "pin_workers =",
            "pin_workers, workers = 1",
            "pin_workers = , workers = 1",
        ] {
            assert_eq!(
                error(text),
                "`pin_workers` takes `true` or `false`, as in `pin_workers = true`",
                "{text}"
            );
        }
    }

    #[test]
    fn a_setting_given_twice_is_refused() {
        assert_eq!(error("workers = 1, workers = 2"), "`workers` is set twice");
    }
}
