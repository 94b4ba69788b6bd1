#!/bin/sh
# Writes FILE to an object in S3, unless a holder with a greater fencing token has written the object.
# Usage: object-store.sh URL TOKEN FILE, with AWS_REGION, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY. Needs curl 7.88 or newer.
# Exits with 0 if the object is written, with 3 if the lock is lost, and with 1 after any other failure.
set -eu
url=$1 token=$2 file=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

s3() { # file that is sent, options of curl: prints the status and the ETag of the answer
    hash=$(sha256sum <"$1")
    shift
    # Standard input has the secret, because every user of the machine can read arguments.
    curl --silent --show-error --config - --header "x-amz-content-sha256: ${hash%% *}" --output "$work/answer" \
        --write-out '%{http_code} %header{etag}' "$@" "$url" <<END
aws-sigv4 = "aws:amz:$AWS_REGION:s3"
user = "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY"
END
}

fail() { # what happened
    echo "error: $url: $1" >&2
    exit 1
}

[ "$token" -ge 0 ] || fail "the token $token is not a number"
# The token is the first line of the object, because the ETag does not depend on metadata.
{ echo "$token" && cat "$file"; } >"$work/new" || exit 1
while answer=$(s3 /dev/null); do
    case $answer in
        200*)
            seen=$(head -n 1 "$work/answer")
            [ "$seen" -ge 0 ] || fail "its first line is not a token"
            [ "$seen" -le "$token" ] || exit 3
            condition="If-Match: ${answer#* }"
            ;;
        404*)
            grep -q "<Code>NoSuchKey<" "$work/answer" || fail "cannot read it: $(cat "$work/answer")"
            condition="If-None-Match: *"
            ;;
        *) fail "cannot read it: $answer $(cat "$work/answer")" ;;
    esac
    answer=$(s3 "$work/new" --request PUT --data-binary "@$work/new" --header "$condition") || break
    case $answer in
        200*) exit 0 ;;
        # Another write came after the read, or is in progress: read again.
        404* | 409* | 412*) ;;
        *) fail "cannot write it: $answer $(cat "$work/answer")" ;;
    esac
done
fail "no answer"
