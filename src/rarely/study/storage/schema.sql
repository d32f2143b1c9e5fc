-- The tables of a database of studies: {blob} is BLOB or BYTEA, and both databases understand the rest.

CREATE TABLE rarely_schema (version INTEGER PRIMARY KEY, rarely TEXT NOT NULL);
CREATE TABLE rarely_studies (
    study INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, budget BIGINT NOT NULL CHECK (budget >= 1)
);
CREATE TABLE rarely_events (
    study INTEGER NOT NULL REFERENCES rarely_studies (study), seq BIGINT NOT NULL CHECK (seq >= 1),
    kind TEXT NOT NULL, time BIGINT NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL,
    ref TEXT, key TEXT, why TEXT NOT NULL, body TEXT NOT NULL, data {blob} NOT NULL,
    previous TEXT NOT NULL, hash TEXT NOT NULL,
    PRIMARY KEY (study, seq)
);
CREATE UNIQUE INDEX rarely_decisions ON rarely_events (study, ref) WHERE kind = 'decide';
CREATE UNIQUE INDEX rarely_deliveries ON rarely_events (study, ref, key) WHERE key IS NOT NULL;
CREATE INDEX rarely_kinds ON rarely_events (study, kind, seq) WHERE kind <> 'decide';
CREATE TABLE rarely_snapshots (
    study INTEGER NOT NULL, seq BIGINT NOT NULL, sha256 TEXT NOT NULL, policy {blob} NOT NULL,
    PRIMARY KEY (study, seq),
    FOREIGN KEY (study, seq) REFERENCES rarely_events (study, seq)
);
CREATE TABLE rarely_leases (
    study INTEGER NOT NULL REFERENCES rarely_studies (study), token BIGINT NOT NULL CHECK (token >= 1),
    holder TEXT NOT NULL, taken BIGINT NOT NULL, expires BIGINT NOT NULL,
    PRIMARY KEY (study, token, expires)
);
CREATE TABLE rarely_erasures (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, time BIGINT NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL,
    events BIGINT NOT NULL, head TEXT NOT NULL
);

-- The last statement is run alone where checkpoints have a file of their own.
CREATE TABLE IF NOT EXISTS rarely_checkpoints (
    study INTEGER NOT NULL, base BIGINT NOT NULL, start BIGINT NOT NULL, seq BIGINT NOT NULL,
    sha256 TEXT NOT NULL, history {blob} NOT NULL, state {blob} NOT NULL,
    PRIMARY KEY (study, base, start)
);
