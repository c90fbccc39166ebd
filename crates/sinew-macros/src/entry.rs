//! `#[sinew::main]` and `#[sinew::test]`: a plain function whose body runs in a fiber.
//!
//! The body becomes a closure in the same function, not a nested function, so that
//! `#[sinew::preemptible]` below one of these attributes still finds its loops. Only the
//! signature is parsed; the body is passed on as the tokens it came as. So a body that is still
//! being typed, or uses syntax newer than our parser, gets the compiler's own messages.
//!
//! The value has to cross from the fiber's thread to the caller's, but what so many `main` return,
//! `Result<(), Box<dyn Error>>`, is not `Send`. Therefore any type but `()` and `!` is turned into
//! an `ExitCode` inside the fiber. That is what std would do with it right after `main` or the
//! test returned: the same text is printed, the same code results.

use proc_macro2::{Delimiter, Group, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Attribute, Error, Result, ReturnType, Signature, Token, Type, Visibility, braced, token,
};

use crate::settings::Settings;

/// Which of the two attributes it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `#[sinew::main]`.
    Main,
    /// `#[sinew::test]`.
    Test,
}

impl Kind {
    fn attribute(self) -> &'static str {
        match self {
            Kind::Main => "#[sinew::main]",
            Kind::Test => "#[sinew::test]",
        }
    }
}

/// Expands the attribute; errors come out as `compile_error!`.
pub(crate) fn expand(kind: Kind, arguments: TokenStream, item: TokenStream) -> TokenStream {
    let function: Function = match syn::parse2(item.clone()) {
        Ok(function) => function,
        Err(error) => {
            let place = format!("{} goes on a function: {error}", kind.attribute());
            return with_error(&Error::new(error.span(), place), item);
        }
    };
    let is_async = function.signature.asyncness.is_some();
    let expanded = function.check(kind).and_then(|()| {
        let settings: Settings = syn::parse2(arguments)?;
        if kind == Kind::Main {
            settings.refuse_timeout()?;
        }
        Ok(function.expand(kind, &settings))
    });
    match expanded {
        Ok(tokens) => tokens,
        // The body's `.await`s would only add errors. A missing `main` would too, so leave an
        // empty one.
        Err(error) if is_async => {
            let name = &function.signature.ident;
            with_error(&error, quote!(#[allow(dead_code)] fn #name() {}))
        }
        // With the function as it was, code that mentions it does not fail as well.
        Err(error) => with_error(&error, item),
    }
}

fn with_error(error: &Error, item: TokenStream) -> TokenStream {
    let mut tokens = error.to_compile_error();
    tokens.extend(item);
    tokens
}

/// A function with its body unparsed.
struct Function {
    outer: Vec<Attribute>,
    visibility: Visibility,
    signature: Signature,
    brace: token::Brace,
    inner: Vec<Attribute>,
    body: TokenStream,
}

impl Parse for Function {
    fn parse(input: ParseStream) -> Result<Self> {
        let content;
        Ok(Function {
            outer: input.call(Attribute::parse_outer)?,
            visibility: input.parse()?,
            signature: input.parse()?,
            brace: braced!(content in input),
            inner: content.call(Attribute::parse_inner)?,
            body: content.parse()?,
        })
    }
}

impl Function {
    /// Says what is wrong with the signature, if anything is.
    fn check(&self, kind: Kind) -> Result<()> {
        let Signature {
            asyncness,
            constness,
            ident,
            generics,
            inputs,
            ..
        } = &self.signature;
        let attribute = kind.attribute();

        if let Some(keyword) = asyncness {
            let message = "sinew needs no async: remove `async`, or call sinew::block_on";
            return Err(Error::new_spanned(keyword, message));
        }
        if let Some(keyword) = constness {
            let message = format!("{attribute} starts a runtime, which a `const fn` cannot do");
            return Err(Error::new_spanned(keyword, message));
        }
        if kind == Kind::Main && ident != "main" {
            let message = format!(
                "{attribute} goes on `fn main`; in other functions call sinew::run(|| ...)"
            );
            return Err(Error::new_spanned(ident, message));
        }
        if !generics.params.is_empty() {
            let message = format!("{attribute} takes a function without generic parameters");
            return Err(Error::new_spanned(&generics.params, message));
        }
        if !inputs.is_empty() {
            let message = format!("{attribute} takes a function without parameters");
            return Err(Error::new_spanned(inputs, message));
        }
        let second = self.outer.iter().find(|attribute| is_std_test(attribute));
        if let (Kind::Test, Some(second)) = (kind, second) {
            let message = format!("{attribute} makes it a test already: remove this attribute");
            return Err(Error::new_spanned(second, message));
        }
        Ok(())
    }

    fn expand(&self, kind: Kind, settings: &Settings) -> TokenStream {
        let Function {
            outer,
            visibility,
            signature,
            inner,
            ..
        } = self;
        let (output, closure) = self.closure();
        let mut signature = signature.clone();
        signature.output = output;

        let test = (kind == Kind::Test).then(|| quote!(#[::core::prelude::v1::test]));
        let call = if kind == Kind::Test {
            let calls = settings.builder_calls(Some(1));
            let timeout = match settings.timeout() {
                Some(timeout) => quote!(::core::option::Option::Some(#timeout)),
                None => quote!(::core::option::Option::None),
            };
            quote!(::sinew::__test::run(::sinew::Runtime::builder() #calls, #timeout, #closure))
        } else if settings.is_empty() {
            quote!(::sinew::run(#closure))
        } else {
            let calls = settings.builder_calls(None);
            // The names are ours alone: the settings' expressions and the body cannot see them.
            let runtime = syn::Ident::new("runtime", Span::mixed_site());
            let error = syn::Ident::new("error", Span::mixed_site());
            // `runtime` is dropped at the end of its arm, also while unwinding; that waits for
            // the other fibers.
            quote! {
                match ::sinew::Runtime::builder() #calls .build() {
                    ::core::result::Result::Ok(#runtime) => #runtime.run(#closure),
                    ::core::result::Result::Err(#error) => {
                        ::core::panic!("could not build the sinew runtime: {}", #error)
                    }
                }
            }
        };
        quote! {
            #test
            #(#outer)*
            #visibility #signature {
                #(#inner)*
                #call
            }
        }
    }

    /// What the expanded function returns, and the closure to run in the fiber.
    fn closure(&self) -> (ReturnType, TokenStream) {
        let mut body = Group::new(Delimiter::Brace, self.body.clone());
        body.set_span(self.brace.span.join());

        let output = &self.signature.output;
        let written = match output {
            ReturnType::Default => return (ReturnType::Default, quote!(|| -> () #body)),
            ReturnType::Type(_, written) => written,
        };
        match &**written {
            Type::Tuple(tuple) if tuple.elems.is_empty() => {
                (output.clone(), quote!(|| -> () #body))
            }
            Type::Never(_) => (output.clone(), quote!(|| #output #body)),
            _ => {
                // A closure's type cannot say `impl Trait`, but it can leave that part to be
                // inferred.
                let mut annotation = written.clone();
                ImplToInfer.visit_type_mut(&mut annotation);
                // At the type's place, so that "`T` is no `Termination`" is reported there; but
                // still as code of ours, which lints leave alone.
                let place = Span::call_site().located_at(written.span());
                let report = quote_spanned! {place=>
                    ::std::process::Termination::report((|| -> #annotation #body)())
                };
                let closure = quote!(|| -> ::std::process::ExitCode { #report });
                let exit_code = syn::parse_quote!(::std::process::ExitCode);
                (
                    ReturnType::Type(<Token![->]>::default(), Box::new(Type::Path(exit_code))),
                    closure,
                )
            }
        }
    }
}

/// Replaces `impl Trait` by `_`.
struct ImplToInfer;

impl VisitMut for ImplToInfer {
    fn visit_type_mut(&mut self, written: &mut Type) {
        if let Type::ImplTrait(_) = written {
            *written = Type::Infer(syn::TypeInfer {
                underscore_token: Token![_](written.span()),
            });
        } else {
            visit_mut::visit_type_mut(self, written);
        }
    }
}

/// Whether it is std's `#[test]`, plain or as `#[core::prelude::v1::test]`.
fn is_std_test(attribute: &Attribute) -> bool {
    let path = attribute
        .path()
        .to_token_stream()
        .to_string()
        .replace(' ', "");
    let path = path.trim_start_matches("::");
    path == "test"
        || ((path.starts_with("core::prelude::") || path.starts_with("std::prelude::"))
            && path.ends_with("::test"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without spaces: how tokens are spaced depends on where they came from.
    fn squeezed(tokens: &str) -> String {
        tokens.replace(' ', "")
    }

    fn expanded(kind: Kind, arguments: &str, item: &str) -> String {
        expand(kind, arguments.parse().unwrap(), item.parse().unwrap()).to_string()
    }

    #[track_caller]
    fn assert_expands(kind: Kind, arguments: &str, item: &str, want: &str) {
        let want: TokenStream = want.parse().unwrap();
        assert_eq!(
            squeezed(&expanded(kind, arguments, item)),
            squeezed(&want.to_string())
        );
    }

    #[track_caller]
    fn assert_error(kind: Kind, arguments: &str, item: &str, want: &str) {
        let got = expanded(kind, arguments, item);
        assert!(got.contains("compile_error"), "no error: {got}");
        assert!(got.contains(want), "not `{want}`: {got}");
    }

    #[test]
    fn main_without_settings_calls_run() {
        assert_expands(
            Kind::Main,
            "",
            "fn main() { work(); }",
            "fn main() { ::sinew::run(|| -> () { work(); }) }",
        );
    }

    #[test]
    fn main_with_settings_builds_a_runtime() {
        assert_expands(
            Kind::Main,
            "workers = 4, name = \"x\"",
            "fn main() { work() }",
            r#"fn main() {
                match ::sinew::Runtime::builder().workers(4).name("x").build() {
                    ::core::result::Result::Ok(runtime) => runtime.run(|| -> () { work() }),
                    ::core::result::Result::Err(error) => {
                        ::core::panic!("could not build the sinew runtime: {}", error)
                    }
                }
            }"#,
        );
    }

    #[test]
    fn a_result_becomes_an_exit_code_inside_the_fiber() {
        assert_expands(
            Kind::Main,
            "",
            "fn main() -> Result<(), Box<dyn Error>> { work()?; Ok(()) }",
            "fn main() -> ::std::process::ExitCode {
                ::sinew::run(|| -> ::std::process::ExitCode {
                    ::std::process::Termination::report(
                        (|| -> Result<(), Box<dyn Error>> { work()?; Ok(()) })()
                    )
                })
            }",
        );
    }

    #[test]
    fn impl_trait_is_left_to_inference() {
        let got = expanded(
            Kind::Main,
            "",
            "fn main() -> Result<(), impl Debug> { work() }",
        );
        assert!(got.contains("|| -> Result < () , _ > { work () }"), "{got}");
    }

    #[test]
    fn unit_and_never_stay_what_they_are() {
        assert_expands(
            Kind::Main,
            "",
            "fn main() -> () {}",
            "fn main() -> () { ::sinew::run(|| -> () {}) }",
        );
        assert_expands(
            Kind::Main,
            "",
            "fn main() -> ! { loop {} }",
            "fn main() -> ! { ::sinew::run(|| -> ! { loop {} }) }",
        );
    }

    #[test]
    fn test_has_one_worker_and_keeps_other_attributes() {
        assert_expands(
            Kind::Test,
            "",
            "#[doc(hidden)] #[should_panic(expected = \"x\")] #[ignore] fn fails() { #![allow(unused)] panic!(\"x\") }",
            r#"#[::core::prelude::v1::test]
            #[doc(hidden)] #[should_panic(expected = "x")] #[ignore]
            fn fails() {
                #![allow(unused)]
                ::sinew::__test::run(
                    ::sinew::Runtime::builder().workers(1usize),
                    ::core::option::Option::None,
                    || -> () { panic!("x") }
                )
            }"#,
        );
    }

    #[test]
    fn a_limit_of_time_goes_to_the_test_not_to_the_builder() {
        assert_expands(
            Kind::Test,
            "timeout = Duration::from_secs(5), workers = 2",
            "fn waits() {}",
            r#"#[::core::prelude::v1::test]
            fn waits() {
                ::sinew::__test::run(
                    ::sinew::Runtime::builder().workers(2),
                    ::core::option::Option::Some(Duration::from_secs(5)),
                    || -> () {}
                )
            }"#,
        );
        assert_error(
            Kind::Main,
            "timeout = Duration::from_secs(5)",
            "fn main() {}",
            "`timeout` is an argument of #[sinew::test]",
        );
    }

    #[test]
    fn async_is_refused_with_advice() {
        for kind in [Kind::Main, Kind::Test] {
            assert_error(
                kind,
                "",
                "async fn main() { x().await }",
                "sinew needs no async: remove `async`, or call sinew::block_on",
            );
        }
        // No second error about a missing `main`, none about `.await`.
        let got = expanded(Kind::Main, "", "async fn main() { x().await }");
        assert!(got.ends_with("fn main () { }"), "{got}");
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        assert_error(Kind::Main, "", "fn start() {}", "goes on `fn main`");
        assert_error(Kind::Main, "", "const fn main() {}", "`const fn` cannot");
        assert_error(
            Kind::Main,
            "",
            "struct Main;",
            "#[sinew::main] goes on a function",
        );
        assert_error(Kind::Test, "", "fn t(x: u8) {}", "without parameters");
        assert_error(Kind::Test, "", "fn t<T>() {}", "without generic parameters");
        assert_error(
            Kind::Test,
            "worker = 1",
            "fn t() {}",
            "unknown argument `worker`",
        );
    }

    #[test]
    fn a_second_test_attribute_is_refused() {
        for second in [
            "#[test]",
            "#[core::prelude::v1::test]",
            "#[::std::prelude::rust_2024::test]",
        ] {
            assert_error(
                Kind::Test,
                "",
                &format!("{second} fn t() {{}}"),
                "makes it a test already",
            );
        }
        let got = expanded(Kind::Test, "", "#[test_case(1)] fn t() {}");
        assert!(!got.contains("compile_error"), "{got}");
    }

    #[test]
    fn an_error_leaves_the_function_in_place() {
        let got = expanded(Kind::Main, "nonsense", "fn main() { work() }");
        assert!(got.ends_with("fn main () { work () }"), "{got}");
    }
}
