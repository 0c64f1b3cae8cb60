//! User authentication at a MySQL or MariaDB server: by password or by the peer of the socket.
//!
//! Only `mysql_native_password` is supported, MariaDB's default method. The password itself is
//! never sent: the server knows `SHA1(SHA1(password))` and asks with a random *scramble*.

use rumbench_core::engine::Result;
use sha1::{Digest, Sha1};

use crate::servers::endpoint::Password;
use crate::servers::packages::MARIADB;
use crate::servers::session::{Fields, unexpected};

pub(super) const NATIVE: &str = "mysql_native_password";
const SCRAMBLE_BYTES: usize = 20;
/// Length of the first part of a scramble, which is sent separately for older clients.
const FIRST_BYTES: usize = 8;

/// Returns the scramble of a server's greeting.
pub(super) fn scramble_of_greeting(mut greeting: Fields<'_>) -> Result<Vec<u8>> {
    let [protocol] = greeting.array()?;
    if protocol != 10 {
        return Err(unexpected(MARIADB, protocol));
    }
    greeting.text()?;
    // The connection's number.
    greeting.bytes(4)?;
    let mut scramble = greeting.bytes(FIRST_BYTES)?.to_vec();
    // A filler; capabilities, character set, status, capabilities again, a length, and reserved
    // bytes.
    greeting.bytes(1 + 2 + 1 + 2 + 2 + 1 + 10)?;
    scramble.extend_from_slice(greeting.bytes(SCRAMBLE_BYTES - FIRST_BYTES)?);
    Ok(scramble)
}

/// Authentication request of the server.
pub(super) enum Asked {
    /// The user is accepted.
    Nothing,
    /// The server wants another proof.
    Proof {
        /// Requested method.
        plugin: String,
        scramble: Vec<u8>,
    },
}

impl Asked {
    pub(super) fn read(mut answer: Fields<'_>) -> Result<Asked> {
        match answer.array()? {
            [0] => Ok(Asked::Nothing),
            [0xfe] => Ok(Asked::Proof {
                plugin: answer.text()?,
                scramble: answer.0.iter().copied().take(SCRAMBLE_BYTES).collect(),
            }),
            [other] => Err(unexpected(MARIADB, other)),
        }
    }
}

/// Returns the proof for a method other than the one tried first.
///
/// # Errors
/// If the method needs a password and is not supported.
pub(super) fn proof_by(
    plugin: &str,
    password: Option<&Password>,
    scramble: &[u8],
) -> Result<Vec<u8>, String> {
    match password {
        _ if plugin == NATIVE => Ok(proof(password, scramble)),
        // The server may identify the user by the socket.
        None => Ok(Vec::new()),
        Some(_) => Err(format!(
            "{MARIADB} wants to know the user by {plugin}; a user is needed with {NATIVE}, or one that it knows by the socket, \
             without `password_file`"
        )),
    }
}

/// Returns `SHA1(password) XOR SHA1(scramble SHA1(SHA1(password)))`, or no bytes without a
/// password.
pub(super) fn proof(password: Option<&Password>, scramble: &[u8]) -> Vec<u8> {
    let Some(password) = password else {
        return Vec::new();
    };
    let once = Sha1::digest(password.reveal());
    let mut asked = Sha1::new();
    asked.update(scramble);
    asked.update(Sha1::digest(once));
    let mask = asked.finalize();
    once.iter().zip(mask).map(|(a, b)| a ^ b).collect()
}

#[cfg(test)]
mod tests {
    use rumbench_core::engine::{Durability, OpenConfig};

    use super::super::run;
    use super::super::storage::Storage;
    use super::super::wire::MariaSession;
    use super::*;
    use crate::servers::endpoint::Endpoint;
    use crate::servers::session::Session;
    use crate::servers::tests::config;

    fn password(text: &str) -> Password {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("password");
        std::fs::write(&file, text).unwrap();
        Password::read(MARIADB, file.to_str().unwrap()).unwrap()
    }

    #[test]
    fn the_proof_is_that_of_the_published_formula() {
        let scramble: Vec<u8> = (1..=20).collect();
        // Computed with the SHA-1 of another program.
        let expected = [
            0xeb, 0x4e, 0xa6, 0xb3, 0xb0, 0x2f, 0xbe, 0x87, 0x93, 0xb4, 0x03, 0x15, 0x0d, 0xbc,
            0xe2, 0xf3, 0xd2, 0xbf, 0xac, 0x59,
        ];
        assert_eq!(proof(Some(&password("two words")), &scramble), expected);
        assert!(proof(None, &scramble).is_empty());
    }

    #[test]
    fn another_proof_is_given_where_it_is_known() {
        let read = |answer: &[u8]| Asked::read(Fields(answer));
        assert!(matches!(read(b"\0"), Ok(Asked::Nothing)));
        assert!(read(b"\x01").is_err() && read(b"").is_err() && read(b"\xfeopen").is_err());
        let Ok(Asked::Proof { plugin, scramble }) =
            read(b"\xfemysql_native_password\0abcdefghijklmnopqrst\0")
        else {
            panic!("another way is asked for");
        };
        assert_eq!(scramble, b"abcdefghijklmnopqrst");
        let word = password("two words");
        let again = proof_by(&plugin, Some(&word), &scramble).unwrap();
        assert_eq!(again, proof(Some(&word), &scramble));
        assert!(proof_by("unix_socket", None, b"").unwrap().is_empty());
        let refused = proof_by("client_ed25519", Some(&word), b"").unwrap_err();
        assert!(refused.contains("client_ed25519") && refused.contains(NATIVE));
    }

    #[test]
    fn a_greeting_that_is_cut_is_refused() {
        let mut greeting = b"\x0a10.11\0\x01\0\0\0abcdefgh\0".to_vec();
        greeting.extend_from_slice(&[0; 18]);
        greeting.extend_from_slice(b"ijklmnopqrst");
        let whole = scramble_of_greeting(Fields(&greeting)).unwrap();
        assert_eq!(whole, b"abcdefghijklmnopqrst");
        for end in 0..greeting.len() {
            assert!(scramble_of_greeting(Fields(&greeting[..end])).is_err());
        }
    }

    #[test]
    fn only_a_user_with_the_right_password_logs_in_to_a_real_server() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path(), Durability::Buffered);
        let engine = run(&config, Storage::InnoDb).unwrap();
        let endpoint = engine.server.running.endpoint.clone();
        let mut own = MariaSession::connect(&endpoint).unwrap();
        // A private server authenticates no user until it reads its table of users.
        let all = "18446744073709551615";
        own.query(&format!(
            "INSERT INTO mysql.global_priv VALUES ('localhost', 'bench', JSON_OBJECT('access', {all}, \
             'plugin', '{NATIVE}', 'authentication_string', PASSWORD('two words')))"
        ))
        .unwrap();
        own.query("FLUSH PRIVILEGES").unwrap();
        let enter = |given: Option<&str>| {
            let mut session = MariaSession::connect(&Endpoint {
                user: "bench".to_string(),
                password: given.map(password),
                ..endpoint.clone()
            })?;
            session.ask("SELECT current_user()")
        };
        assert_eq!(enter(Some("two words")).unwrap(), "bench@localhost");
        for wrong in [None, Some("two word")] {
            let error = format!("{:?}", enter(wrong).unwrap_err());
            assert!(
                error.contains("1045") && error.contains("password_file"),
                "{error}"
            );
            assert!(!error.contains("two word"), "{error}");
        }

        let file = dir.path().join("password");
        std::fs::write(&file, "two words\n").unwrap();
        let settings = [
            ("address", endpoint.address.to_string()),
            ("user", "bench".to_string()),
            ("password_file", file.to_str().unwrap().to_string()),
            ("database", "given".to_string()),
        ];
        let settings = settings.map(|(key, value)| (key.to_string(), value));
        let joined = run(
            &OpenConfig {
                settings: settings.into(),
                ..config
            },
            Storage::InnoDb,
        );
        let told = joined.unwrap().server.running.facts.configuration.clone();
        assert_eq!(told["address"], endpoint.address.to_string());
        assert!(told.values().all(|value| !value.contains("two words")));
    }
}
