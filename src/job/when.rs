//! `when`: whether a step runs. Keywords, or a condition in a small typed language.
//!
//! ```text
//! condition = and { "||" and }
//! and       = not { "&&" not }
//! not       = "!" not | "(" condition ")" | status | number comparison number
//! status    = "success()" | "failure()" | "always()"
//! number    = INTEGER | "queue_depth('QUEUE')" | "failing('QUEUE')" | "documents()"
//! comparison = "==" | "!=" | "<" | "<=" | ">" | ">="
//! ```
//!
//! Everything is checked when the file is read; evaluation cannot fail.

use std::ops::Range;

use crate::diagnostic::nearest;

/// Whether a step runs, given how its needs ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum When {
    /// All needs are satisfied. The default.
    #[default]
    Success,
    /// However the needs ended.
    Always,
    /// At least one need failed.
    Failure,
    /// A condition holds.
    Condition(Condition),
}

impl When {
    /// Whether deciding needs numbers from the database.
    pub fn reads_facts(&self) -> bool {
        match self {
            Self::Success | Self::Always | Self::Failure => false,
            Self::Condition(condition) => condition.expr.reads_facts(),
        }
    }
}

impl std::fmt::Display for When {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Success => "success",
            Self::Always => "always",
            Self::Failure => "failure",
            Self::Condition(condition) => condition.text(),
        })
    }
}

/// A condition that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    text: String,
    expr: Expr,
}

/// A queue that conditions can ask about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Entities whose documents are to be rendered again.
    DirtySources,
    /// Items whose discussions are to be fetched.
    PendingDiscussionFetches,
}

impl Queue {
    /// All queues.
    pub const ALL: [Self; 2] = [Self::DirtySources, Self::PendingDiscussionFetches];

    /// Name in conditions: that of the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DirtySources => "dirty_sources",
            Self::PendingDiscussionFetches => "pending_discussion_fetches",
        }
    }
}

/// What conditions can ask about.
pub trait Facts {
    /// Entries of a queue.
    fn queue_depth(&self, queue: Queue) -> i64;
    /// Entries of a queue that failed at least once.
    fn failing(&self, queue: Queue) -> i64;
    /// Documents.
    fn documents(&self) -> i64;
}

/// How the needs of a step ended, taken together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeedsState {
    /// All are satisfied.
    Satisfied,
    /// At least one failed.
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Expr {
    Or(Box<Self>, Box<Self>),
    And(Box<Self>, Box<Self>),
    Not(Box<Self>),
    Compare(Number, Comparison, Number),
    Status(Status),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Number {
    Literal(i64),
    QueueDepth(Queue),
    Failing(Queue),
    Documents,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Success,
    Failure,
    Always,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Condition {
    /// The condition as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the condition speaks about its needs itself, so that nothing is assumed.
    pub fn decides_alone(&self) -> bool {
        self.expr.names_status()
    }

    /// Whether the condition holds.
    pub fn eval(&self, facts: &dyn Facts, needs: NeedsState) -> bool {
        self.expr.eval(facts, needs)
    }
}

impl Expr {
    fn reads_facts(&self) -> bool {
        match self {
            Self::Or(a, b) | Self::And(a, b) => a.reads_facts() || b.reads_facts(),
            Self::Not(a) => a.reads_facts(),
            Self::Compare(a, _, b) => [a, b].iter().any(|side| !matches!(side, Number::Literal(_))),
            Self::Status(_) => false,
        }
    }

    fn names_status(&self) -> bool {
        match self {
            Self::Or(a, b) | Self::And(a, b) => a.names_status() || b.names_status(),
            Self::Not(a) => a.names_status(),
            Self::Compare(..) => false,
            Self::Status(_) => true,
        }
    }

    fn eval(&self, facts: &dyn Facts, needs: NeedsState) -> bool {
        match self {
            Self::Or(a, b) => a.eval(facts, needs) || b.eval(facts, needs),
            Self::And(a, b) => a.eval(facts, needs) && b.eval(facts, needs),
            Self::Not(a) => !a.eval(facts, needs),
            Self::Compare(a, comparison, b) => comparison.holds(a.eval(facts), b.eval(facts)),
            Self::Status(Status::Success) => needs == NeedsState::Satisfied,
            Self::Status(Status::Failure) => needs == NeedsState::Failed,
            Self::Status(Status::Always) => true,
        }
    }
}

impl Number {
    fn eval(self, facts: &dyn Facts) -> i64 {
        match self {
            Self::Literal(number) => number,
            Self::QueueDepth(queue) => facts.queue_depth(queue),
            Self::Failing(queue) => facts.failing(queue),
            Self::Documents => facts.documents(),
        }
    }
}

impl Comparison {
    fn holds(self, a: i64, b: i64) -> bool {
        match self {
            Self::Equal => a == b,
            Self::NotEqual => a != b,
            Self::Less => a < b,
            Self::LessOrEqual => a <= b,
            Self::Greater => a > b,
            Self::GreaterOrEqual => a >= b,
        }
    }
}

/// What is wrong with a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WhenError {
    /// Bytes of the text that are meant.
    pub span: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What was probably meant.
    pub suggestion: Option<String>,
}

/// Parses the text of `when`.
///
/// # Errors
/// The first problem, with the bytes that it is about.
pub fn parse(text: &str) -> Result<When, WhenError> {
    match text.trim() {
        "success" => return Ok(When::Success),
        "always" => return Ok(When::Always),
        "failure" => return Ok(When::Failure),
        _ => {}
    }
    let mut parser = Parser { tokens: tokenize(text)?, at: 0, end: text.len(), depth: 0 };
    let expr = parser.condition()?;
    match parser.peek() {
        None => Ok(When::Condition(Condition { text: text.trim().to_owned(), expr })),
        Some(token) => {
            Err(fail(&token.span, format!("unexpected {}, expected `&&`, `||` or the end", token.kind)))
        }
    }
}

const STATUS: [(&str, Status); 3] =
    [("success", Status::Success), ("failure", Status::Failure), ("always", Status::Always)];
const FUNCTIONS: [&str; 6] = ["queue_depth", "failing", "documents", "success", "failure", "always"];
/// Nesting beyond which a condition is refused, so that reading one cannot exhaust the stack.
const MAX_DEPTH: usize = 32;

fn fail(span: &Range<usize>, message: impl Into<String>) -> WhenError {
    WhenError { span: span.clone(), message: message.into(), suggestion: None }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Name(String),
    Text(String),
    Integer(i64),
    Compare(Comparison),
    And,
    Or,
    Not,
    Open,
    Close,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => write!(f, "`{name}`"),
            Self::Text(text) => write!(f, "'{text}'"),
            Self::Integer(number) => write!(f, "`{number}`"),
            Self::Compare(_) => f.write_str("comparison"),
            Self::And => f.write_str("`&&`"),
            Self::Or => f.write_str("`||`"),
            Self::Not => f.write_str("`!`"),
            Self::Open => f.write_str("`(`"),
            Self::Close => f.write_str("`)`"),
        }
    }
}

#[derive(Debug, Clone)]
struct Token {
    kind: Kind,
    span: Range<usize>,
}

fn tokenize(text: &str) -> Result<Vec<Token>, WhenError> {
    let mut tokens = Vec::new();
    let mut chars = text.char_indices().peekable();
    while let Some((start, c)) = chars.next() {
        let mut two = |second: char| chars.next_if(|(_, next)| *next == second).is_some();
        let kind = match c {
            c if c.is_whitespace() => continue,
            '(' => Kind::Open,
            ')' => Kind::Close,
            '!' if two('=') => Kind::Compare(Comparison::NotEqual),
            '!' => Kind::Not,
            '<' if two('=') => Kind::Compare(Comparison::LessOrEqual),
            '<' => Kind::Compare(Comparison::Less),
            '>' if two('=') => Kind::Compare(Comparison::GreaterOrEqual),
            '>' => Kind::Compare(Comparison::Greater),
            '=' if two('=') => Kind::Compare(Comparison::Equal),
            '&' if two('&') => Kind::And,
            '|' if two('|') => Kind::Or,
            '=' | '&' | '|' => {
                let mut error = fail(&(start..start + 1), format!("unexpected `{c}`"));
                error.suggestion = Some(format!("did you mean `{c}{c}`?"));
                return Err(error);
            }
            '\'' => {
                let mut word = String::new();
                loop {
                    match chars.next() {
                        Some((_, '\'')) => break,
                        Some((_, c)) => word.push(c),
                        None => return Err(fail(&(start..text.len()), "text without a closing `'`")),
                    }
                }
                Kind::Text(word)
            }
            c if c.is_ascii_digit() || c == '-' => {
                let mut digits = String::from(c);
                while let Some((_, c)) = chars.next_if(|(_, c)| c.is_ascii_alphanumeric() || *c == '_') {
                    digits.push(c);
                }
                let number = digits.replace('_', "").parse();
                let span = start..start + digits.len();
                Kind::Integer(number.map_err(|_| fail(&span, format!("`{digits}` is not an integer")))?)
            }
            c if c.is_alphabetic() || c == '_' => {
                let mut name = String::from(c);
                while let Some((_, c)) = chars.next_if(|(_, c)| c.is_alphanumeric() || *c == '_') {
                    name.push(c);
                }
                Kind::Name(name)
            }
            c => return Err(fail(&(start..start + c.len_utf8()), format!("unexpected character {c:?}"))),
        };
        let end = chars.peek().map_or(text.len(), |(at, _)| *at);
        tokens.push(Token { kind, span: start..end });
    }
    Ok(tokens)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    end: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn take(&mut self, kind: &Kind) -> bool {
        let found = self.peek().is_some_and(|token| token.kind == *kind);
        self.at += usize::from(found);
        found
    }

    fn next(&mut self, expected: &str) -> Result<Token, WhenError> {
        let Some(token) = self.peek().cloned() else {
            return Err(fail(&(self.end..self.end), format!("the condition ends here, expected {expected}")));
        };
        self.at += 1;
        Ok(token)
    }

    fn condition(&mut self) -> Result<Expr, WhenError> {
        let mut left = self.and()?;
        while self.take(&Kind::Or) {
            left = Expr::Or(Box::new(left), Box::new(self.and()?));
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Expr, WhenError> {
        let mut left = self.not()?;
        while self.take(&Kind::And) {
            left = Expr::And(Box::new(left), Box::new(self.not()?));
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<Expr, WhenError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let span = self.peek().map_or(self.end..self.end, |token| token.span.clone());
            return Err(fail(&span, format!("nested more than {MAX_DEPTH} deep")));
        }
        let expr = self.operand();
        self.depth -= 1;
        expr
    }

    fn operand(&mut self) -> Result<Expr, WhenError> {
        if self.take(&Kind::Not) {
            return Ok(Expr::Not(Box::new(self.not()?)));
        }
        if self.take(&Kind::Open) {
            let inner = self.condition()?;
            self.expect(&Kind::Close)?;
            return Ok(inner);
        }
        if let Some(Token { kind: Kind::Name(name), .. }) = self.peek()
            && let Some((_, status)) = STATUS.iter().find(|(known, _)| known == name)
        {
            let status = *status;
            self.at += 1;
            self.expect(&Kind::Open)?;
            self.expect(&Kind::Close)?;
            return Ok(Expr::Status(status));
        }
        let left = self.number()?;
        let token = self.next("a comparison such as `== 0`")?;
        let Kind::Compare(comparison) = token.kind else {
            return Err(fail(
                &token.span,
                format!("unexpected {}, expected a comparison such as `== 0`", token.kind),
            ));
        };
        Ok(Expr::Compare(left, comparison, self.number()?))
    }

    fn number(&mut self) -> Result<Number, WhenError> {
        let token = self.next("a function or an integer")?;
        let name = match token.kind {
            Kind::Integer(number) => return Ok(Number::Literal(number)),
            Kind::Name(name) => name,
            kind => {
                return Err(fail(
                    &token.span,
                    format!("unexpected {kind}, expected a function or an integer"),
                ));
            }
        };
        let span = token.span;
        if STATUS.iter().any(|(known, _)| *known == name) {
            return Err(fail(&span, format!("`{name}()` is true or false and cannot be compared")));
        }
        if !FUNCTIONS.contains(&name.as_str()) {
            let mut error = fail(&span, format!("unknown function `{name}`"));
            error.suggestion = Some(match nearest(&name, FUNCTIONS) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("known: {}", FUNCTIONS.join(", ")),
            });
            return Err(error);
        }
        self.expect(&Kind::Open)?;
        let number = match name.as_str() {
            "queue_depth" => Number::QueueDepth(self.queue()?),
            "failing" => Number::Failing(self.queue()?),
            _ => Number::Documents,
        };
        self.expect(&Kind::Close)?;
        Ok(number)
    }

    fn queue(&mut self) -> Result<Queue, WhenError> {
        let names = Queue::ALL.map(Queue::name);
        let token = self.next("the name of a queue in quotes")?;
        let Kind::Text(name) = token.kind else {
            return Err(fail(
                &token.span,
                format!("unexpected {}, expected the name of a queue in quotes", token.kind),
            ));
        };
        Queue::ALL.into_iter().find(|queue| queue.name() == name).ok_or_else(|| {
            let mut error = fail(&token.span, format!("unknown queue '{name}'"));
            error.suggestion = Some(match nearest(&name, names) {
                Some(near) => format!("did you mean '{near}'?"),
                None => format!("known: {}", names.join(", ")),
            });
            error
        })
    }

    fn expect(&mut self, kind: &Kind) -> Result<(), WhenError> {
        let token = self.next(&kind.to_string())?;
        if token.kind == *kind {
            return Ok(());
        }
        Err(fail(&token.span, format!("unexpected {}, expected {kind}", token.kind)))
    }
}
