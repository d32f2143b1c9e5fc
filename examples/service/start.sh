# Make the study and a first key where there are none, and serve.
set -eu
rarely study create "$STORAGE" banners --file /study.json --actor compose
test -s /keys/keys.json || rarely keys add /keys/keys.json first --scope decide --scope reward --scope read --scope admin
exec rarely serve "$STORAGE" --host 0.0.0.0 --port 8000 --keys /keys/keys.json
