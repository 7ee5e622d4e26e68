//! The `sshjobs` program.

fn main() -> std::process::ExitCode {
    sshjobs::program::main()
}
