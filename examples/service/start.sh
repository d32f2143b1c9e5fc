# Make the study and a first key where there are none, and serve. The key goes to a file, not to the log.
set -eu
rarely study create "$STORAGE" --name banners --file /study.json --actor compose
test -s /keys/keys.json || (
    umask 077
    rarely keys add /keys/keys.json first --scope decide --scope reward --scope read --scope admin --scope erase > /keys/first.key
)
exec rarely serve "$STORAGE" --host 0.0.0.0 --port 8000 --keys /keys/keys.json --log-format json
