//! User authentication at a PostgreSQL server: by password or by trust.
//!
//! A private server trusts its user, because its socket is in a folder that no other user can
//! enter. For other servers SCRAM-SHA-256 and MD5 are supported, and a clear-text password, but
//! only over a Unix socket.

use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use rumbench_core::engine::{EngineError, Result};

use crate::servers::endpoint::{Address, Endpoint, Password};
use crate::servers::packages::POSTGRESQL;
use crate::servers::session::{Fields, ServerError, Wire, unexpected};

/// Codes of the server's authentication messages in the PostgreSQL protocol.
mod asked {
    pub(super) const OK: u32 = 0;
    pub(super) const CLEAR_TEXT: u32 = 3;
    pub(super) const MD5: u32 = 5;
    pub(super) const SASL: u32 = 10;
    pub(super) const SASL_MORE: u32 = 11;
    pub(super) const SASL_END: u32 = 12;
}

/// Maximum messages of the server before it admits a user: SCRAM takes four.
const MESSAGES_MAX: u32 = 8;
/// Maximum length of a message in bytes; errors are the longest.
const MESSAGE_BYTES_MAX: u32 = 64 << 10;

/// Answers the server's authentication requests until it accepts the user.
///
/// # Errors
/// If the server refuses, if it asks for a missing password or for an unsupported method, or if it
/// cannot prove that it knows the password itself.
pub(super) fn authenticate(wire: &mut Wire, endpoint: &Endpoint) -> Result<()> {
    // Set between the first message of SCRAM and the server's proof.
    let mut scram = None;
    for _ in 0..MESSAGES_MAX {
        let (kind, body) = message(wire)?;
        let mut body = Fields(&body);
        if kind == b'E' {
            return Err(wire.answered(server_error(body)));
        }
        let way = u32::from_be_bytes(body.array()?);
        match (way, &mut scram) {
            (asked::OK, None) => return Ok(()),
            (asked::OK, Some(_)) => {
                return Err(EngineError::Wrong(
                    "postgresql let the user in without a proof that it knows the password"
                        .to_string(),
                ));
            }
            (asked::CLEAR_TEXT, None) => match endpoint.address {
                Address::Socket(_) => answer(wire, &[password(endpoint)?.as_bytes(), b"\0"])?,
                Address::Network(_) => {
                    return Err(EngineError::Unsupported(
                        "postgresql asks for the password as it is over the network, where it is not sent; scram-sha-256 \
                         belongs into its pg_hba.conf"
                            .to_string(),
                    ));
                }
            },
            (asked::MD5, None) => {
                let (user, password) = (endpoint.user.as_bytes(), password(endpoint)?.as_bytes());
                let hash = md5_hash(user, password, body.array()?);
                answer(wire, &[hash.as_bytes(), b"\0"])?;
            }
            (asked::SASL, None) => {
                let begun = ScramSha256::new(
                    password(endpoint)?.as_bytes(),
                    ChannelBinding::unsupported(),
                );
                let first = begun.message();
                let length = (first.len() as u32).to_be_bytes();
                answer(wire, &[SCRAM_SHA_256.as_bytes(), b"\0", &length, first])?;
                scram = Some(begun);
            }
            (asked::SASL_MORE, Some(begun)) => {
                begun.update(body.0).map_err(wrong_proof)?;
                answer(wire, &[begun.message()])?;
            }
            (asked::SASL_END, Some(begun)) => {
                begun.finish(body.0).map_err(wrong_proof)?;
                scram = None;
            }
            (way, _) => {
                return Err(EngineError::Unsupported(format!(
                    "postgresql wants to know the user by way {way} of its protocol; scram-sha-256, md5, trust and peer are \
                     understood here (pg_hba.conf)"
                )));
            }
        }
    }
    Err(EngineError::Wrong(
        "postgresql asks who the user is again and again".to_string(),
    ))
}

/// Reads kind and body of the next message: an error or an authentication request.
fn message(wire: &mut Wire) -> Result<(u8, Vec<u8>)> {
    let header = wire.take(5)?;
    let kind = header[0];
    let length = Fields(&header[1..]).array().map(u32::from_be_bytes)?;
    // Any other service at this address sends something else.
    if !matches!(kind, b'E' | b'R') || length > MESSAGE_BYTES_MAX {
        return Err(unexpected(POSTGRESQL, kind));
    }
    let body = wire.take((length as usize).saturating_sub(4))?;
    Ok((kind, body.to_vec()))
}

fn answer(wire: &mut Wire, parts: &[&[u8]]) -> Result<()> {
    let length = 4 + parts.iter().map(|part| part.len()).sum::<usize>();
    let mut out = vec![b'p'];
    out.extend_from_slice(&(length as u32).to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
    wire.send(&out)
}

fn password(endpoint: &Endpoint) -> Result<&str> {
    let given = endpoint.password.as_ref().map(Password::reveal);
    given.ok_or_else(|| {
        EngineError::Unsupported(
            "postgresql asks for a password; it is read from the first line of the file that the setting `password_file` \
             names, or a user is needed that it trusts (pg_hba.conf: trust or peer)"
                .to_string(),
        )
    })
}

fn wrong_proof(error: std::io::Error) -> EngineError {
    EngineError::failed("postgresql: log in with scram-sha-256", error)
}

/// Reads code and message of an error.
#[cold]
pub(super) fn server_error(mut fields: Fields<'_>) -> ServerError {
    let (mut code, mut message) = (String::new(), String::new());
    while let Ok([kind]) = fields.array()
        && kind != 0
        && let Ok(text) = fields.text()
    {
        match kind {
            b'C' => code = text,
            b'M' => message = text,
            b'D' => message = format!("{message} ({text})"),
            _ => {}
        }
    }
    let message = format!("{message} [{code}]");
    match code.as_str() {
        // Serialization failure, deadlock, lock not available.
        "40001" | "40P01" | "55P03" => ServerError::Retry(message),
        "23505" => ServerError::Duplicate(message),
        _ => ServerError::Other(message),
    }
}

#[cfg(test)]
mod tests {
    use rumbench_core::engine::Durability;

    use super::super::run;
    use super::super::wire::PostgresSession;
    use super::*;
    use crate::servers::places::DATA_FOLDER;
    use crate::servers::session::Session;
    use crate::servers::tests::config;

    /// Methods of `pg_hba.conf`, each with its user.
    const WAYS: [(&str, &str); 3] = [
        ("scram", "scram-sha-256"),
        ("hashed", "md5"),
        ("clear", "password"),
    ];

    /// Makes the server demand passwords from these users.
    fn want_passwords(own: &mut PostgresSession, data: &std::path::Path) {
        for (user, way) in WAYS {
            let hash = if way == "md5" { way } else { "scram-sha-256" };
            own.query(&format!("SET password_encryption = '{hash}'"))
                .unwrap();
            own.query(&format!("CREATE USER {user} PASSWORD 'two words'"))
                .unwrap();
        }
        let rules = data.join("pg_hba.conf");
        let before = std::fs::read_to_string(&rules).unwrap();
        let lines = WAYS.map(|(user, way)| format!("local all {user} {way}\n"));
        std::fs::write(&rules, lines.concat() + &before).unwrap();
        own.query("SELECT pg_reload_conf()").unwrap();
    }

    /// Returns the error of a user with a password, from a server that answers each message with
    /// the next of these.
    fn told_by(answers: Vec<&'static [u8]>) -> EngineError {
        use std::io::{Read, Write};
        let dir = tempfile::tempdir().unwrap();
        let (socket, file) = (dir.path().join("socket"), dir.path().join("password"));
        std::fs::write(&file, "two words").unwrap();
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            for answer in answers {
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(answer);
            }
        });
        let told = PostgresSession::connect(&Endpoint {
            address: Address::Socket(socket),
            user: "bench".to_string(),
            password: Some(Password::read(POSTGRESQL, file.to_str().unwrap()).unwrap()),
            database: "given".to_string(),
            log: None,
        });
        server.join().unwrap();
        told.err().expect("not let in")
    }

    #[test]
    fn a_server_must_prove_that_it_knows_the_password_and_be_one() {
        let scram: &[u8] = b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0";
        let error = told_by(vec![scram, b"R\0\0\0\x08\0\0\0\0"]);
        assert!(error.to_string().contains("without a proof"), "{error}");
        let error = told_by(vec![b"SSH-2.0-another program\r\n"]);
        assert!(matches!(error, EngineError::Wrong(_)), "{error}");
        let again: &[u8] = b"R\0\0\0\x0c\0\0\0\x05salt";
        let error = told_by(vec![again; 9]);
        assert!(error.to_string().contains("again and again"), "{error}");
    }

    #[test]
    fn only_users_with_the_right_password_log_in_to_a_real_server() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path(), Durability::Buffered);
        let engine = run(&config).unwrap();
        let endpoint = engine.server.running.endpoint.clone();
        let mut own = PostgresSession::connect(&endpoint).unwrap();
        want_passwords(&mut own, &dir.path().join(DATA_FOLDER));
        let log_in = |user: &str, given: Option<&str>| {
            let password = given.map(|text| {
                let file = dir.path().join("password");
                std::fs::write(&file, text).unwrap();
                Password::read(POSTGRESQL, file.to_str().unwrap()).unwrap()
            });
            let mut session = PostgresSession::connect(&Endpoint {
                user: user.to_string(),
                password,
                ..endpoint.clone()
            })?;
            session.ask("SELECT current_user")
        };
        for (user, _) in WAYS {
            // The server reloads its rules asynchronously.
            while log_in(user, None).is_ok() {}
            assert_eq!(log_in(user, Some("two words")).unwrap(), user);
            let error = log_in(user, None).unwrap_err().to_string();
            assert!(error.contains("password_file"), "{error}");
            let error = format!("{:?}", log_in(user, Some("two word")).unwrap_err());
            assert!(error.contains("28P01"), "{user}: {error}");
            assert!(!error.contains("two word"), "{error}");
        }
    }
}
