package auth

import (
	"bytes"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/kubeletkit/kubeletkit/internal/logging"
	"github.com/kubeletkit/kubeletkit/internal/nodenet"
)

// BearerToken returns the bearer token of a request, "" if there is none. As in kubelet, it ends at
// the first space.
func BearerToken(req *http.Request) string { return nodenet.BearerToken(req) }

// tokenHash keeps the time of a lookup from depending on the token.
type tokenHash [sha256.Size]byte

// TokenFile is an [Authenticator] of clients with bearer tokens from a file, for nodes without an
// API server that could review tokens.
type TokenFile struct {
	users *file[map[tokenHash]*authenticationv1.UserInfo]
}

// NewTokenFile returns an authenticator with the tokens of the file. Its form is that of
// kube-apiserver's --token-auth-file: lines of comma-separated values with the token, the user, its
// UID, and optionally its groups.
//
//	31ada4fd-adec-460c-809a-9e56ceb75269,alice,1,"readers,system:masters"
//
// The file is read again when it changes, within 10 seconds; while it cannot be used, the tokens are
// those of before.
// A zero log is that of package slog.
func NewTokenFile(path string, log logr.Logger) (*TokenFile, error) {
	log = logging.OrDefault(log)
	users, err := newFile(path, "tokens of clients", log, parseTokens)
	if err != nil {
		return nil, err
	}
	return &TokenFile{users}, nil
}

// parseTokens parses a token file. Its errors do not have tokens.
func parseTokens(content []byte) (map[tokenHash]*authenticationv1.UserInfo, error) {
	r := csv.NewReader(bytes.NewReader(content))
	r.FieldsPerRecord, r.TrimLeadingSpace, r.Comment = -1, true, '#'
	users := map[tokenHash]*authenticationv1.UserInfo{}
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return users, nil
		}
		if err != nil {
			return nil, err
		}
		line, _ := r.FieldPos(0)
		if len(record) < 3 || len(record) > 4 {
			return nil, fmt.Errorf("line %d: %d values; want the token, the user, its UID, and optionally its "+
				"groups in quotes", line, len(record))
		}
		token, user := strings.TrimSpace(record[0]), &authenticationv1.UserInfo{Username: record[1], UID: record[2]}
		if token == "" || user.Username == "" {
			return nil, fmt.Errorf("line %d: the token or the user is empty", line)
		}
		if len(record) == 4 {
			for group := range strings.SplitSeq(record[3], ",") {
				if group = strings.TrimSpace(group); group != "" {
					user.Groups = append(user.Groups, group)
				}
			}
		}
		hash := tokenHash(sha256.Sum256([]byte(token)))
		if users[hash] != nil {
			return nil, fmt.Errorf("line %d: its token is that of another line", line)
		}
		users[hash] = user
	}
}

var errUnknownToken = errors.New("the bearer token is not in the file of tokens")

// Authenticate implements [Authenticator].
func (t *TokenFile) Authenticate(req *http.Request) (*authenticationv1.UserInfo, error) {
	token := BearerToken(req)
	if token == "" {
		return nil, nil
	}
	user := t.users.get()[tokenHash(sha256.Sum256([]byte(token)))]
	if user == nil {
		return nil, errUnknownToken
	}
	return user, nil
}
