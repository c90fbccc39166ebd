//! The attributes on real functions, on the real runtime. (`#[sinew::main]` is run by its doc
//! examples.)

mod test_attribute {
    use std::error::Error;

    const WORKERS: usize = 2;

    #[sinew::test]
    fn there_is_one_worker_unless_told_otherwise() {
        let here = std::thread::current().id();
        let there = sinew::spawn(|| std::thread::current().id());
        assert_eq!(there.join().unwrap(), here);
    }

    #[sinew::test(workers = WORKERS, stack_size = 512 * 1024, name = "io", strict_order = true)]
    fn settings_may_be_expressions() {
        assert_eq!(sinew::spawn(|| 42).join().unwrap(), 42);
    }

    #[sinew::test]
    #[should_panic(expected = "seen by the harness")]
    fn a_panic_reaches_the_harness() {
        panic!("seen by the harness");
    }

    #[sinew::test(workers = WORKERS - 2)]
    #[should_panic(expected = "could not build the sinew runtime: ")]
    fn a_build_error_is_a_panic_with_its_text() {}

    #[sinew::test]
    #[ignore = "would fail"]
    fn ignore_is_kept() {
        panic!("ran although ignored");
    }

    #[sinew::test]
    fn a_result_need_not_be_send() -> Result<(), Box<dyn Error>> {
        if "42".parse::<i32>()? == 42 {
            return Ok(());
        }
        Err("not 42".into())
    }

    #[sinew::test]
    fn the_result_may_be_an_impl_trait() -> Result<(), impl Error> {
        "42".parse::<i32>().map(drop)
    }

    #[sinew::test]
    #[sinew::preemptible]
    fn preemptible_goes_with_it() {
        let mut turns = 0;
        while turns < 3 {
            turns += 1;
        }
        assert_eq!(turns, 3);
    }
}

mod preemptible {
    use std::ops::ControlFlow;

    #[sinew::preemptible]
    fn every_kind_of_loop(n: u32) -> u32 {
        use std::iter::once;
        const STEP: u32 = {
            let mut step = 0;
            while step < 1 {
                step += 1;
            }
            step
        };
        let mut sum = 0;
        let mut left = vec![(); n as usize];
        'rounds: loop {
            for i in once(0).chain(1..n) {
                if i % 2 == 0 {
                    continue;
                }
                sum += STEP;
                if sum > 3 {
                    break 'rounds;
                }
            }
            #[sinew::unchecked]
            while let Some(()) = left.pop() {
                sum += 1;
            }
        }
        let mut doublings = 0;
        // Without `preemptible` an attribute on this expression would not be stable Rust.
        let doubled = #[sinew::unchecked]
        loop {
            sum *= 2;
            doublings += 1;
            if doublings == 2 {
                break sum;
            }
        };
        doubled + 1
    }

    #[sinew::test]
    fn a_preemptible_function_computes_the_same() {
        // Odd numbers below 6, the six of `left`, one more odd number; doubled twice.
        assert_eq!(every_kind_of_loop(6), (3 + 6 + 1) * 4 + 1);
    }

    #[sinew::preemptible]
    fn diverges(flow: ControlFlow<u8>) -> u8 {
        let ControlFlow::Break(code) = flow else {
            loop {}
        };
        code
    }

    trait Count {
        fn limit(&self) -> u32;
        fn count(&self) -> u32;
    }

    struct Odd<const N: u32>;

    #[sinew::preemptible]
    impl<const N: u32> Count for Odd<N> {
        #[sinew::unchecked]
        fn limit(&self) -> u32 {
            N
        }

        fn count(&self) -> u32 {
            let odd = |n: u32| {
                let mut count = 0;
                for i in 0..n {
                    count += i % 2;
                }
                count
            };
            odd(self.limit())
        }
    }

    #[sinew::preemptible]
    trait Twice: Count {
        fn twice(&self) -> u32 {
            let mut sum = 0;
            for _ in 0..2 {
                sum += self.count();
            }
            sum
        }
    }

    impl<const N: u32> Twice for Odd<N> {}

    #[sinew::test]
    fn methods_work_in_impls_and_traits() {
        assert_eq!(Odd::<10>.count(), 5);
        assert_eq!(Odd::<10>.twice(), 10);
        assert_eq!(diverges(ControlFlow::Break(3)), 3);
    }

    struct Sum(u64);

    impl Sum {
        #[sinew::preemptible]
        fn add_down_from(&mut self, n: u64) {
            if n > 0 {
                self.0 += n;
                self.add_down_from(n - 1);
            }
        }

        #[sinew::unchecked]
        const fn get(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn a_single_method_may_have_the_attribute_also_off_a_fiber() {
        let mut sum = Sum(0);
        sum.add_down_from(10);
        assert_eq!(sum.get(), 55);
    }
}
