//! `#[sinew::preemptible]` and `#[sinew::unchecked]`: where safepoints go, and where they don't.
//!
//! A body is walked once. Each loop gets `::sinew::safepoint();` at the start of its body, which
//! every turn passes, however the one before it ended; the function gets one at its entry. Both
//! go behind leading items (`use`, `const`, …), which run nothing, so that lints about items
//! after statements stay quiet.
//!
//! The call takes the place in the source of the keyword `loop`, `while` or `for`, or of the
//! function's name. So a `#[track_caller]` safepoint, a debugger and a profile all name the loop
//! and not the attribute.
//!
//! Two things are kept out of the walk: constants, where a call that is not `const` would not
//! compile (types, patterns and generic arguments hold no other expressions), and nested items,
//! which have attributes of their own. What is in a macro call is mere tokens, so it stays as it
//! is.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote_spanned};
use syn::parse::{Parse, ParseStream, Parser};
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{
    AngleBracketedGenericArguments, Attribute, Block, Error, Expr, ExprConst, ExprForLoop,
    ExprLoop, ExprRepeat, ExprWhile, ImplItem, Item, Meta, Pat, Path, Result, Signature, Stmt,
    Token, TraitItem, Type, Visibility, token,
};

/// What both attributes say if they meet on one function, in either order.
const CONTRADICTION: &str = "a function is either `preemptible` or `unchecked`: remove one";

/// Expands `#[sinew::preemptible]`.
pub(crate) fn expand_preemptible(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut walk = Walk::default();
    walk.refuse_arguments("preemptible", &arguments);
    let mut tokens = match syn::parse2::<Item>(item.clone()) {
        Ok(mut parsed) => {
            walk.item(&mut parsed);
            parsed.into_token_stream()
        }
        Err(error) => {
            walk.complain(error);
            item
        }
    };
    // The item comes too, so that code that mentions it does not fail as well.
    if let Some(errors) = walk.errors {
        tokens.extend(errors.to_compile_error());
    }
    tokens
}

/// Expands `#[sinew::unchecked]` where it stands alone: to the function as it is.
pub(crate) fn expand_unchecked(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let mut walk = Walk::default();
    walk.refuse_arguments("unchecked", &arguments);
    match function_head.parse2(item.clone()) {
        Ok(attributes) => {
            if let Some(mark) = attributes.iter().find(|mark| is_mark(mark, "preemptible")) {
                walk.complain(Error::new_spanned(mark, CONTRADICTION));
            }
        }
        Err(error) => {
            let message = "#[sinew::unchecked] goes on a function, or on a loop in a \
                           #[sinew::preemptible] one";
            walk.complain(Error::new(error.span(), message));
        }
    }
    let mut tokens = item;
    if let Some(errors) = walk.errors {
        tokens.extend(errors.to_compile_error());
    }
    tokens
}

/// Parses a function up to its body, which may be missing, and skips the rest.
fn function_head(input: ParseStream) -> Result<Vec<Attribute>> {
    let attributes = Attribute::parse_outer(input)?;
    Visibility::parse(input)?;
    Signature::parse(input)?;
    if !input.peek(token::Brace) && !input.peek(Token![;]) {
        return Err(input.error("expected a body"));
    }
    TokenStream::parse(input)?;
    Ok(attributes)
}

/// The walk through an item.
#[derive(Default)]
struct Walk {
    /// We are inside something marked `#[sinew::unchecked]`.
    unchecked: bool,
    /// All that was wrong, in the order found.
    errors: Option<Error>,
}

impl Walk {
    fn complain(&mut self, error: Error) {
        match &mut self.errors {
            Some(errors) => errors.combine(error),
            None => self.errors = Some(error),
        }
    }

    fn refuse_arguments(&mut self, attribute: &str, arguments: &TokenStream) {
        if !arguments.is_empty() {
            self.complain(Error::new(
                arguments.span(),
                format!("#[sinew::{attribute}] takes no arguments"),
            ));
        }
    }

    /// Rewrites what the attribute stands on.
    fn item(&mut self, item: &mut Item) {
        match item {
            Item::Fn(function) => {
                if let Some(mark) = self.take_mark(&mut function.attrs, "unchecked") {
                    self.complain(Error::new_spanned(mark, CONTRADICTION));
                }
                self.function(&function.sig, &mut function.block, "");
            }
            Item::Impl(block) => {
                for item in &mut block.items {
                    if let ImplItem::Fn(method) = item {
                        self.method(&mut method.attrs, &method.sig, &mut method.block);
                    }
                }
            }
            Item::Trait(block) => {
                for item in &mut block.items {
                    if let TraitItem::Fn(method) = item {
                        match &mut method.default {
                            Some(body) => self.method(&mut method.attrs, &method.sig, body),
                            None => drop(self.take_mark(&mut method.attrs, "unchecked")),
                        }
                    }
                }
            }
            other => self.complain(Error::new(
                other.span(),
                "#[sinew::preemptible] goes on a function with a body, an `impl` block or a trait",
            )),
        }
    }

    /// Rewrites a method of a preemptible `impl` or trait.
    fn method(&mut self, attributes: &mut Vec<Attribute>, signature: &Signature, body: &mut Block) {
        // The block has the attribute already; twice would be two safepoints each.
        self.take_mark(attributes, "preemptible");
        if self.take_mark(attributes, "unchecked").is_some() {
            self.unchecked = true;
            self.visit_block_mut(body); // marks on loops inside still have to go
            self.unchecked = false;
        } else {
            self.function(signature, body, "; mark it #[sinew::unchecked]");
        }
    }

    /// Rewrites a function's body. `remedy` ends the message if it can't be done.
    fn function(&mut self, signature: &Signature, body: &mut Block, remedy: &str) {
        if let Some(keyword) = &signature.constness {
            let message =
                format!("a `const fn` cannot have safepoints: they are not constant{remedy}");
            self.complain(Error::new(keyword.span(), message));
            self.unchecked = true;
        } else if let Some(keyword) = &signature.asyncness {
            let message = format!(
                "an `async fn` cannot have safepoints: others run at its `.await`s{remedy}"
            );
            self.complain(Error::new(keyword.span(), message));
            self.unchecked = true;
        }
        self.visit_block_mut(body);
        if !self.unchecked {
            insert_safepoint(body, signature.ident.span());
        }
        self.unchecked = false;
    }

    /// Takes `#[sinew::name]` out of `attributes`.
    fn take_mark(&mut self, attributes: &mut Vec<Attribute>, name: &str) -> Option<Attribute> {
        let mut taken = None;
        while let Some(index) = attributes
            .iter()
            .position(|attribute| is_mark(attribute, name))
        {
            let mark = attributes.remove(index);
            if !matches!(mark.meta, Meta::Path(_)) {
                let message = format!("#[sinew::{name}] takes no arguments");
                self.complain(Error::new_spanned(&mark, message));
            }
            taken = Some(mark);
        }
        taken
    }

    /// Walks through a loop, whose attributes `attributes` and body `body` find, and puts a
    /// safepoint in unless it, or something around it, is unchecked.
    fn turn<L>(
        &mut self,
        node: &mut L,
        keyword: Span,
        attributes: impl Fn(&mut L) -> &mut Vec<Attribute>,
        body: impl Fn(&mut L) -> &mut Block,
        walk: impl Fn(&mut Self, &mut L),
    ) {
        let outside = self.unchecked;
        self.unchecked |= self.take_mark(attributes(node), "unchecked").is_some();
        walk(self, node);
        if !self.unchecked {
            insert_safepoint(body(node), keyword);
        }
        self.unchecked = outside;
    }
}

impl VisitMut for Walk {
    fn visit_expr_loop_mut(&mut self, node: &mut ExprLoop) {
        let keyword = node.loop_token.span;
        self.turn(
            node,
            keyword,
            |n| &mut n.attrs,
            |n| &mut n.body,
            visit_mut::visit_expr_loop_mut,
        );
    }

    fn visit_expr_while_mut(&mut self, node: &mut ExprWhile) {
        let keyword = node.while_token.span;
        self.turn(
            node,
            keyword,
            |n| &mut n.attrs,
            |n| &mut n.body,
            visit_mut::visit_expr_while_mut,
        );
    }

    fn visit_expr_for_loop_mut(&mut self, node: &mut ExprForLoop) {
        let keyword = node.for_token.span;
        self.turn(
            node,
            keyword,
            |n| &mut n.attrs,
            |n| &mut n.body,
            visit_mut::visit_expr_for_loop_mut,
        );
    }

    /// Marks that a loop took are gone before this; the others are taken away so that the
    /// compiler, which knows no attribute macros on expressions, does not complain as well.
    fn visit_attributes_mut(&mut self, attributes: &mut Vec<Attribute>) {
        if let Some(mark) = self.take_mark(attributes, "unchecked") {
            let message =
                "#[sinew::unchecked] goes on a function, or directly on a `loop`, `while` or `for`";
            self.complain(Error::new_spanned(mark, message));
        }
    }

    // Constants: run by the compiler, where a safepoint would not compile.
    fn visit_expr_const_mut(&mut self, _: &mut ExprConst) {}
    fn visit_type_mut(&mut self, _: &mut Type) {}
    fn visit_pat_mut(&mut self, _: &mut Pat) {}
    fn visit_path_mut(&mut self, _: &mut Path) {}
    fn visit_angle_bracketed_generic_arguments_mut(
        &mut self,
        _: &mut AngleBracketedGenericArguments,
    ) {
    }
    fn visit_expr_repeat_mut(&mut self, node: &mut ExprRepeat) {
        let element: &mut Expr = &mut node.expr;
        self.visit_expr_mut(element); // and not the length
    }

    // Nested items: not ours.
    fn visit_item_mut(&mut self, _: &mut Item) {}
}

/// Whether it is `#[name]`, `#[sinew::name]` or `#[::sinew::name]`.
fn is_mark(attribute: &Attribute, name: &str) -> bool {
    let path = attribute.path();
    let segments: Vec<_> = path.segments.iter().map(|segment| &segment.ident).collect();
    match segments.as_slice() {
        [only] => path.leading_colon.is_none() && *only == name,
        [library, last] => *library == "sinew" && *last == name,
        _ => false,
    }
}

/// Puts `::sinew::safepoint();` in front of the first statement that runs.
fn insert_safepoint(body: &mut Block, place: Span) {
    let call: TokenStream = quote_spanned!(place=> ::sinew::safepoint());
    let statement = Stmt::Expr(Expr::Verbatim(call), Some(Token![;](place)));
    let items = body
        .stmts
        .iter()
        .take_while(|statement| matches!(statement, Stmt::Item(_)))
        .count();
    body.stmts.insert(items, statement);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without spaces: how tokens are spaced depends on where they came from.
    fn squeezed(tokens: &str) -> String {
        tokens.replace(' ', "")
    }

    fn expanded(item: &str) -> String {
        expand_preemptible(TokenStream::new(), item.parse().unwrap()).to_string()
    }

    /// In `want`, `SP;` stands for a safepoint.
    #[track_caller]
    fn assert_expands(item: &str, want: &str) {
        let want: TokenStream = want
            .replace("SP;", "::sinew::safepoint();")
            .parse()
            .unwrap();
        assert_eq!(squeezed(&expanded(item)), squeezed(&want.to_string()));
    }

    #[track_caller]
    fn assert_error(item: &str, want: &str) {
        let got = expanded(item);
        assert!(got.contains("compile_error"), "no error: {got}");
        assert!(got.contains(want), "not `{want}`: {got}");
    }

    #[test]
    fn entry_and_every_kind_of_loop_get_a_safepoint() {
        assert_expands(
            "pub fn f(n: u32) -> u32 {
                loop { break; }
                while n > 1 { step(); }
                while let Some(x) = next() { if x { continue; } }
                'a: for i in 0..n { continue 'a; }
                while busy() {}
                n
            }",
            "pub fn f(n: u32) -> u32 {
                SP;
                loop { SP; break; }
                while n > 1 { SP; step(); }
                while let Some(x) = next() { SP; if x { continue; } }
                'a: for i in 0..n { SP; continue 'a; }
                while busy() { SP; }
                n
            }",
        );
    }

    #[test]
    fn loops_are_found_at_any_depth() {
        assert_expands(
            "fn f() -> u8 {
                let Some(x) = y else { loop {} };
                match x { A if { for a in b {} true } => unsafe { while c {} }, _ => { let z = loop { break 1; }; } }
                while { loop { break true; } } { for a in { loop { break b; } } { for c in d {} } }
                [(); 3].map(|_| for a in b {});
                async { loop {} };
                if x { loop { return 1; } } else { 'b: { 2 } }
            }",
            "fn f() -> u8 {
                SP;
                let Some(x) = y else { loop { SP; } };
                match x {
                    A if { for a in b { SP; } true } => unsafe { while c { SP; } },
                    _ => { let z = loop { SP; break 1; }; }
                }
                while { loop { SP; break true; } } { SP; for a in { loop { SP; break b; } } { SP; for c in d { SP; } } }
                [(); 3].map(|_| for a in b { SP; });
                async { loop { SP; } };
                if x { loop { SP; return 1; } } else { 'b: { 2 } }
            }",
        );
    }

    #[test]
    fn items_constants_and_macros_are_left_alone() {
        assert_expands(
            "fn f() {
                fn inner() { loop {} }
                const N: usize = { while false {} 1 };
                static S: [u8; { loop { break 1; } }] = [0];
                let a: [u8; { loop { break 1; } }] = [0; { loop { break 1; } }];
                let b = const { loop { break 1; } };
                g::<{ loop { break 1; } }>();
                h.g::<{ loop { break 1; } }>();
                vec![loop { break 1; }];
                my_macro! { loop {} }
            }",
            "fn f() {
                fn inner() { loop {} }
                const N: usize = { while false {} 1 };
                static S: [u8; { loop { break 1; } }] = [0];
                SP;
                let a: [u8; { loop { break 1; } }] = [0; { loop { break 1; } }];
                let b = const { loop { break 1; } };
                g::<{ loop { break 1; } }>();
                h.g::<{ loop { break 1; } }>();
                vec![loop { break 1; }];
                my_macro! { loop {} }
            }",
        );
    }

    #[test]
    fn the_element_of_a_repeat_is_walked_though_its_length_is_not() {
        assert_expands(
            "fn f() { [loop { break 1; }; { loop { break 1; } }]; }",
            "fn f() { SP; [loop { SP; break 1; }; { loop { break 1; } }]; }",
        );
    }

    #[test]
    fn inner_attributes_and_items_stay_in_front() {
        assert_expands(
            "fn f() { #![allow(x)] use a::b; loop { #![allow(y)] const C: u8 = 1; b(C); } }",
            "fn f() { #![allow(x)] use a::b; SP; loop { #![allow(y)] const C: u8 = 1; SP; b(C); } }",
        );
    }

    #[test]
    fn unchecked_loops_are_left_alone_with_all_inside() {
        for mark in [
            "#[unchecked]",
            "#[sinew::unchecked]",
            "#[::sinew::unchecked]",
        ] {
            assert_expands(
                &format!(
                    "fn f() {{
                        for a in b {{ {mark} for c in d {{ loop {{ {mark} while e {{}} }} }} for g in h {{}} }}
                        {mark} 'l: loop {{}}
                        #[allow(x)] {mark} while let a = b {{}}
                        let x = {mark} loop {{ break 1; }};
                    }}"
                ),
                "fn f() {
                    SP;
                    for a in b { SP; for c in d { loop { while e {} } } for g in h { SP; } }
                    'l: loop {}
                    #[allow(x)] while let a = b {}
                    let x = loop { break 1; };
                }",
            );
        }
    }

    #[test]
    fn other_attributes_of_that_name_are_not_ours() {
        assert_expands(
            "fn f() { #[other::unchecked] loop {} #[::unchecked] loop {} }",
            "fn f() { SP; #[other::unchecked] loop { SP; } #[::unchecked] loop { SP; } }",
        );
    }

    #[test]
    fn an_impl_block_covers_every_method() {
        assert_expands(
            "impl<T> S<T> {
                const N: usize = { loop { break 1; } };
                pub fn a(&self) { loop {} }
                #[sinew::preemptible] fn b() {}
                #[doc(hidden)] #[sinew::unchecked] fn c() { loop { #[unchecked] for x in y {} } }
                #[unchecked] const fn d() { loop {} }
                #[unchecked] async fn e() { loop {} }
                fn g() {}
            }",
            "impl<T> S<T> {
                const N: usize = { loop { break 1; } };
                pub fn a(&self) { SP; loop { SP; } }
                fn b() { SP; }
                #[doc(hidden)] fn c() { loop { for x in y {} } }
                const fn d() { loop {} }
                async fn e() { loop {} }
                fn g() { SP; }
            }",
        );
    }

    #[test]
    fn a_trait_is_covered_where_it_has_bodies() {
        assert_expands(
            "trait T { fn a(&self); #[unchecked] fn b(); fn c(&self) { loop {} } }",
            "trait T { fn a(&self); fn b(); fn c(&self) { SP; loop { SP; } } }",
        );
    }

    #[test]
    fn a_method_alone_is_a_function() {
        assert_expands(
            "pub(crate) unsafe fn a(&mut self) {}",
            "pub(crate) unsafe fn a(&mut self) { SP; }",
        );
    }

    #[test]
    fn const_and_async_functions_are_refused() {
        assert_error(
            "const fn f() {}",
            "a `const fn` cannot have safepoints: they are not constant\"",
        );
        assert_error(
            "async fn f() {}",
            "an `async fn` cannot have safepoints: others run at its `.await`s\"",
        );
        assert_error(
            "impl S { const fn f() {} }",
            "they are not constant; mark it #[sinew::unchecked]",
        );
        assert_error(
            "impl S { async fn f() {} }",
            "`.await`s; mark it #[sinew::unchecked]",
        );
        assert!(!expanded("const fn f() { loop {} }").contains("safepoint ()"));
    }

    #[test]
    fn one_refused_method_does_not_keep_the_next_from_its_safepoint() {
        assert!(
            expanded("impl S { const fn f() {} fn g() {} }")
                .contains("fn g () { :: sinew :: safepoint () ; }")
        );
    }

    #[test]
    fn marks_in_the_wrong_place_are_refused() {
        assert_error(
            "fn f() { #[unchecked] let x = loop {}; }",
            "directly on a `loop`, `while` or `for`",
        );
        assert_error(
            "fn f() { #[sinew::unchecked] { loop {} } }",
            "directly on a `loop`, `while` or `for`",
        );
        assert_error(
            "#[unchecked] fn f() {}",
            "either `preemptible` or `unchecked`",
        );
        assert_error(
            "fn f() { #[unchecked(all)] loop {} }",
            "#[sinew::unchecked] takes no arguments",
        );
    }

    #[test]
    fn all_errors_are_reported_at_once() {
        let got = expanded("impl S { const fn f() {} fn g() { #[unchecked(x)] loop {} } }");
        assert_eq!(got.matches("compile_error").count(), 2, "{got}");
    }

    #[test]
    fn other_items_and_arguments_are_refused() {
        assert_error(
            "struct S;",
            "goes on a function with a body, an `impl` block or a trait",
        );
        assert_error("fn f();", "goes on a function with a body");
        let got =
            expand_preemptible("fast".parse().unwrap(), "fn f() {}".parse().unwrap()).to_string();
        assert!(
            got.contains("#[sinew::preemptible] takes no arguments"),
            "{got}"
        );
    }

    #[test]
    fn unchecked_alone_changes_nothing() {
        for item in [
            "pub const fn f() { loop { } }",
            "# [inline] async fn f (& self) { }",
            "fn f () ;",
        ] {
            let item: TokenStream = item.parse().unwrap();
            assert_eq!(
                expand_unchecked(TokenStream::new(), item.clone()).to_string(),
                item.to_string()
            );
        }
    }

    #[test]
    fn unchecked_alone_goes_on_functions_only() {
        let got = expand_unchecked(TokenStream::new(), "struct S;".parse().unwrap()).to_string();
        assert!(
            got.contains("#[sinew::unchecked] goes on a function"),
            "{got}"
        );
        let both = "#[sinew::preemptible] fn f() {}".parse().unwrap();
        let got = expand_unchecked(TokenStream::new(), both).to_string();
        assert!(got.contains("either `preemptible` or `unchecked`"), "{got}");
        let got = expand_unchecked("x".parse().unwrap(), "fn f() {}".parse().unwrap()).to_string();
        assert!(
            got.contains("#[sinew::unchecked] takes no arguments"),
            "{got}"
        );
    }
}
