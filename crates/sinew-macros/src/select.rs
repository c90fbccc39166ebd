//! `select!`, `select_biased!` and `race!`.
//!
//! Arms are parsed one by one; each becomes a variant of an enum that the select
//! yields, and an arm of the `match` over it that has the body. What the pieces
//! do is in `sinew`'s own `select` folder, which also draws the whole.
//!
//! An error points at the arm that is wrong. For those that the compiler finds later,
//! such as a handle that is none, what is made of an argument stands where that stood.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, Expr, Ident, Pat, Result, Token, parenthesized};

const NAMES: [&str; 6] = ["recv", "send", "join", "wait", "cancelled", "default"];

/// Which of the macros it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Fair,
    Biased,
    Race,
}

/// What an arm waits for.
enum Operation {
    Recv(Expr),
    Send(Expr, Box<Expr>),
    Join(Expr),
    Wait(Expr),
}

impl Operation {
    /// Where the channel, handle or thing is.
    fn span(&self) -> Span {
        let (Self::Recv(x) | Self::Send(x, _) | Self::Join(x) | Self::Wait(x)) = self;
        x.span()
    }
}

struct Arm {
    operation: Operation,
    binding: Option<Pat>,
    body: Expr,
}

#[derive(Default)]
struct Arms {
    arms: Vec<Arm>,
    /// `default`, with the timeout if it has one.
    default: Option<(Option<Expr>, Expr)>,
    cancelled: Option<Expr>,
}

impl Parse for Arms {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut all = Self::default();
        while !input.is_empty() {
            all.parse_arm(input)?;
        }
        Ok(all)
    }
}

impl Arms {
    fn parse_arm(&mut self, input: ParseStream<'_>) -> Result<()> {
        let begin = input.span();
        // `default` is a keyword of some contexts only: an identifier here.
        let name = input.call(<Ident as syn::ext::IdentExt>::parse_any);
        let name = name
            .ok()
            .filter(|name| NAMES.iter().any(|known| name == known));
        let Some(name) = name else {
            let message = "expected an arm: `recv(receiver)`, `send(sender, message)`, \
                `join(handle)`, `wait(thing)`, `cancelled` or `default`";
            return Err(Error::new(begin, message));
        };
        let mut arguments = None;
        if input.peek(syn::token::Paren) {
            let content;
            parenthesized!(content in input);
            arguments = Some(Punctuated::<Expr, Token![,]>::parse_terminated(&content)?);
        }
        let mut binding = None;
        if input.peek(Token![->]) {
            input.parse::<Token![->]>()?;
            unless_at_end(input, &name, "a pattern after `->`")?;
            binding = Some(input.call(Pat::parse_multi_with_leading_vert)?);
        }
        unless_at_end(input, &name, "`=>` and a body")?;
        input.parse::<Token![=>]>()?;
        unless_at_end(input, &name, "a body after `=>`")?;
        let body = input.call(Expr::parse_with_earlier_boundary_rule)?;
        let block_like = matches!(
            body,
            Expr::Block(_)
                | Expr::If(_)
                | Expr::Match(_)
                | Expr::While(_)
                | Expr::Loop(_)
                | Expr::ForLoop(_)
                | Expr::Unsafe(_)
        );
        if input.peek(Token![,]) {
            input.parse::<Token![,]>()?;
        } else if !input.is_empty() && !block_like {
            return Err(input.error("expected `,` after the body of an arm"));
        }
        self.add(&name, arguments, binding, body)
    }

    fn add(
        &mut self,
        name: &Ident,
        arguments: Option<Punctuated<Expr, Token![,]>>,
        binding: Option<Pat>,
        body: Expr,
    ) -> Result<()> {
        let count = arguments.as_ref().map_or(0, Punctuated::len);
        let mut values = arguments.into_iter().flatten();
        let mut next = || values.next().expect("counted");
        let operation = match (name.to_string().as_str(), count) {
            ("recv", 1) => Operation::Recv(next()),
            ("send", 2) => Operation::Send(next(), Box::new(next())),
            ("join", 1) => Operation::Join(next()),
            ("wait", 1) => Operation::Wait(next()),
            ("recv" | "join" | "wait", _) => {
                return Err(Error::new(
                    name.span(),
                    format!("`{name}` takes one argument"),
                ));
            }
            ("send", _) => {
                return Err(Error::new(
                    name.span(),
                    "`send` takes a sender and a message",
                ));
            }
            ("default" | "cancelled", _) if binding.is_some() => {
                return Err(Error::new(name.span(), format!("`{name}` yields nothing")));
            }
            ("default", 0 | 1) => {
                let timeout = (count == 1).then(next);
                if self.default.replace((timeout, body)).is_some() {
                    return Err(Error::new(name.span(), "a second `default` arm"));
                }
                return Ok(());
            }
            ("default", _) => {
                return Err(Error::new(name.span(), "`default` takes at most a timeout"));
            }
            ("cancelled", 0) => {
                if self.cancelled.replace(body).is_some() {
                    return Err(Error::new(name.span(), "a second `cancelled` arm"));
                }
                return Ok(());
            }
            ("cancelled", _) => {
                return Err(Error::new(name.span(), "`cancelled` takes no argument"));
            }
            _ => unreachable!("the name is one of NAMES"),
        };
        self.arms.push(Arm {
            operation,
            binding,
            body,
        });
        Ok(())
    }
}

/// An end of the input has no place of its own; the arm that ends too early has.
fn unless_at_end(input: ParseStream<'_>, name: &Ident, wanted: &str) -> Result<()> {
    if input.is_empty() {
        let message = format!("this `{name}` arm needs {wanted}");
        return Err(Error::new(name.span(), message));
    }
    Ok(())
}

pub(crate) fn expand(input: TokenStream, kind: Kind) -> TokenStream {
    match syn::parse2::<Arms>(input) {
        Ok(Arms {
            arms,
            default: None,
            cancelled: None,
        }) if arms.is_empty() => Error::new(
            Span::call_site(),
            "a select without arms would wait for ever",
        )
        .into_compile_error(),
        Ok(arms) => expand_arms(&arms, kind),
        Err(error) => error.into_compile_error(),
    }
}

fn expand_arms(all: &Arms, kind: Kind) -> TokenStream {
    let local = |name: &str, index: usize, at| Ident::new(&format!("{name}{index}"), at);
    let mut parameters = Vec::new();
    let (mut outer, mut inner, mut refs) = (Vec::new(), Vec::new(), Vec::new());
    let (mut chosen, mut bodies) = (Vec::new(), Vec::new());
    let (mut cancels, mut things) = (Vec::new(), Vec::new());
    for (index, arm) in all.arms.iter().enumerate() {
        // Where the arm's argument is, but with the names of this macro.
        let at = Span::mixed_site().located_at(arm.operation.span());
        let (thing, made) = (local("__thing", index, at), local("__arm", index, at));
        let variant = format_ident!("Arm{index}");
        parameters.push(format_ident!("T{index}"));
        let value = Ident::new("__value", Span::mixed_site());
        let (bind, make, result) = match &arm.operation {
            Operation::Recv(receiver) => (
                quote_spanned!(at=> &(#receiver)),
                quote_spanned!(at=> ::sinew::__select::recv(#thing)),
                quote!(#value),
            ),
            Operation::Send(sender, message) => (
                quote_spanned!(at=> &(#sender)),
                quote_spanned!(at=> ::sinew::__select::send(#thing)),
                quote!(#value.send(#message)),
            ),
            Operation::Join(handle) => (
                quote_spanned!(at=> &mut (#handle)),
                quote_spanned!(at=> ::sinew::__select::join(&*#thing)),
                quote_spanned!(at=> {
                    let () = #value;
                    ::sinew::__select::joined(&mut *#thing)
                }),
            ),
            Operation::Wait(waitable) => (
                quote!(#waitable),
                quote_spanned!(at=> ::sinew::__select::wait(#thing)),
                quote!(#value),
            ),
        };
        outer.push(bind);
        things.push(thing.clone());
        inner.push(quote!(let mut #made = #make;));
        refs.push(quote!(#made.as_arm()));
        chosen.push(quote! {
            ::sinew::__select::Choice::Arm(#index) => __Selected::#variant(#made.take()),
        });
        let body = &arm.body;
        let pattern = arm
            .binding
            .as_ref()
            .map_or_else(|| quote!(_), |pat| quote!(#pat));
        bodies.push(quote! {
            __Selected::#variant(#value) => {
                let #pattern = #result;
                #body
            }
        });
        if kind == Kind::Race && matches!(arm.operation, Operation::Join(_)) {
            cancels.push(quote! {
                if !::core::matches!(__choice, ::sinew::__select::Choice::Arm(#index)) {
                    ::sinew::__select::cancel(&*#thing);
                }
            });
        }
    }
    let biased = kind == Kind::Biased;
    let has_cancelled = all.cancelled.is_some();
    let unreachable = quote!(::core::unreachable!("this arm is not there"));
    let cancelled_body = all
        .cancelled
        .as_ref()
        .map_or_else(|| unreachable.clone(), |body| quote!(#body));
    let (wait, default_body) = match &all.default {
        None => (quote!(::sinew::__select::Wait::forever()), unreachable),
        Some((None, body)) => (quote!(::sinew::__select::Wait::not_at_all()), quote!(#body)),
        Some((Some(timeout), body)) => (
            quote!(::sinew::__select::Wait::at_most(#timeout)),
            quote!(#body),
        ),
    };
    let variants = parameters.iter().enumerate().map(|(index, parameter)| {
        let variant = format_ident!("Arm{index}");
        quote!(#variant(#parameter))
    });
    quote! {
        {
            #[allow(dead_code, clippy::large_enum_variant)]
            enum __Selected<#(#parameters),*> {
                #(#variants,)*
                Default,
                Cancelled,
            }
            // The scrutinee: what is temporary in it lives until the end.
            match (#(#outer,)*) { (#(#things,)*) => match {
                #[allow(unused_imports)]
                use ::sinew::__select::WaitArm as _;
                #(#inner)*
                let __choice = ::sinew::__select::run(
                    [#(#refs),*],
                    #biased,
                    #wait,
                    #has_cancelled,
                );
                #(#cancels)*
                match __choice {
                    #(#chosen)*
                    ::sinew::__select::Choice::Arm(_) => ::core::unreachable!(),
                    ::sinew::__select::Choice::Default => __Selected::Default,
                    ::sinew::__select::Choice::Cancelled => __Selected::Cancelled,
                }
            } {
                #(#bodies)*
                __Selected::Default => #default_body,
                __Selected::Cancelled => #cancelled_body,
            } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn assert_error(arms: &str, want: &str) {
        let got = expand(arms.parse().unwrap(), Kind::Fair).to_string();
        assert!(got.contains("compile_error"), "no error: {got}");
        assert!(got.contains(want), "not `{want}`: {got}");
    }

    #[track_caller]
    fn assert_expands(arms: &str) {
        let got = expand(arms.parse().unwrap(), Kind::Fair).to_string();
        assert!(!got.contains("compile_error"), "{got}");
    }

    #[test]
    fn what_is_no_arm_is_told_which_there_are() {
        for wrong in [
            "receive(rx) -> x => x,",
            "recv(rx) -> x => x, message = rx.recv() => message,",
            "rx.recv() => (),",
            "_ => (),",
            "7 => (),",
            "=> (),",
        ] {
            assert_error(wrong, "expected an arm: `recv(receiver)`");
        }
    }

    #[test]
    fn an_arm_that_ends_too_early_is_told_what_it_lacks() {
        assert_error("recv(rx) -> x", "this `recv` arm needs `=>` and a body");
        assert_error("default", "this `default` arm needs `=>` and a body");
        assert_error("recv(rx) ->", "needs a pattern after `->`");
        assert_error("join(fiber) -> x =>", "needs a body after `=>`");
        assert_error("recv(rx) -> x x", "expected `=>`");
        assert_error(
            "recv(rx) -> x => x default => y",
            "expected `,` after the body",
        );
    }

    #[test]
    fn arms_take_so_many_arguments() {
        assert_error("recv() -> x => x", "`recv` takes one argument");
        assert_error("recv(a, b) -> x => x", "`recv` takes one argument");
        assert_error("join -> x => x", "`join` takes one argument");
        assert_error("wait => ()", "`wait` takes one argument");
        assert_error("send(tx) -> x => x", "`send` takes a sender and a message");
        assert_error("default(a, b) => ()", "`default` takes at most a timeout");
        assert_error("cancelled(x) => ()", "`cancelled` takes no argument");
    }

    #[test]
    fn default_and_cancelled_come_once_and_yield_nothing() {
        assert_error("default => 1, default(time) => 2", "a second `default` arm");
        assert_error("cancelled => 1, cancelled => 2", "a second `cancelled` arm");
        assert_error("default -> x => x", "`default` yields nothing");
        assert_error("cancelled -> x => x", "`cancelled` yields nothing");
    }

    #[test]
    fn there_is_at_least_one_arm() {
        assert_error("", "a select without arms would wait for ever");
        assert_expands("default => ()");
        assert_expands("cancelled => ()");
    }

    #[test]
    fn a_binding_may_be_left_out() {
        assert_expands("recv(rx) => (), send(tx, 1) => (), join(fiber) => {} wait(&event) => ()");
    }
}
