//! The `lore` binary: reads its surroundings and hands them to the library.

use std::io::IsTerminal;
use std::process::ExitCode;

fn main() -> ExitCode {
    let world = lore::World {
        args: std::env::args_os().collect(),
        vars: std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect(),
        current_dir: std::env::current_dir().unwrap_or_default(),
        out: Box::new(std::io::stdout()),
        err: Box::new(std::io::stderr()),
        out_is_terminal: std::io::stdout().is_terminal(),
        err_is_terminal: std::io::stderr().is_terminal(),
        columns: lore::terminal_columns(),
    };
    ExitCode::from(lore::run(world))
}
