//! `lore completions` and `lore man`: generated from the same definition as the parser.

use clap::CommandFactory;

use super::App;
use super::args::Cli;
use crate::error::{Error, Result};

/// Prints a completion script for a shell.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// Shell to complete in
    shell: clap_complete::Shell,
}

/// Runs `lore completions`.
///
/// # Errors
/// When the output cannot be written.
pub fn completions(args: &CompletionsArgs, app: &mut App) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "lore", &mut script);
    app.reply_with_text(&script)
}

/// Runs `lore man`.
///
/// # Errors
/// When the output cannot be written.
pub fn man(app: &mut App) -> Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command())
        .render(&mut page)
        .map_err(|error| Error::internal("render the manual page").because(error))?;
    app.reply_with_text(&page)
}
