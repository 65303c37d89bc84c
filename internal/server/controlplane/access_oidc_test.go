package controlplane_test

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// An issuer is an OIDC issuer with one key.
type issuer struct {
	*httptest.Server
	key *rsa.PrivateKey
}

const audience = "slipway"

// newIssuer starts an issuer.
func newIssuer(t testing.TB) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		sendJSON(t, w, map[string]any{
			"issuer": i.URL, "jwks_uri": i.URL + "/keys", "id_token_signing_alg_values_supported": []string{"RS256"},
			"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"},
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		sendJSON(t, w, map[string]any{"keys": []any{map[string]any{
			"kty": "RSA", "alg": "RS256", "use": "sig", "kid": "one",
			"n": encodeURL(key.N.Bytes()), "e": encodeURL(big.NewInt(int64(key.E)).Bytes()),
		}}})
	})
	i.Server = httptest.NewTLSServer(mux)
	t.Cleanup(i.Close)
	return i
}

func sendJSON(t testing.TB, w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		t.Error(err)
	}
}

func encodeURL(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// sign returns a token for a user.
func (i *issuer) sign(t testing.TB, user string, groups ...string) string {
	t.Helper()
	payload, err := json.Marshal(map[string]any{
		"iss": i.URL, "aud": audience, "sub": user, "groups": groups, "jti": rand.Text(),
		"iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(),
	})
	if err != nil {
		t.Fatal(err)
	}
	text := encodeURL([]byte(`{"alg":"RS256","kid":"one","typ":"JWT"}`)) + "." + encodeURL(payload)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, i.key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + encodeURL(signature)
}

// configure returns the configuration with this issuer. prefix is the begin of names and groups.
func (i *issuer) configure(prefix string) string {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw})
	return noIssuers + fmt.Sprintf(`jwt:
- issuer:
    url: %s
    audiences: [%s]
    certificateAuthority: |
%s
  claimMappings:
    username: {claim: sub, prefix: "%s"}
    groups: {claim: groups, prefix: "%s"}
`, i.URL, audience, "      "+strings.ReplaceAll(strings.TrimSpace(string(ca)), "\n", "\n      "), prefix, prefix)
}

// writeIssuers replaces the AuthenticationConfiguration of the running server.
func writeIssuers(t testing.TB, text string) {
	t.Helper()
	next := issuersFile + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, issuersFile); err != nil {
		t.Fatal(err)
	}
}

// contextOfCleanup returns the context for the end of a test, when the context of the test has
// ended.
func contextOfCleanup(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), waitTime)
	t.Cleanup(cancel)
	return ctx
}

// useIssuer lets the server accept the tokens of a new issuer for the time of the test.
func useIssuer(t testing.TB, prefix string) *issuer {
	t.Helper()
	i := newIssuer(t)
	writeIssuers(t, i.configure(prefix))
	t.Cleanup(func() { writeIssuers(t, noIssuers) })
	i.waitForName(t, prefix+"jane")
	return i
}

// waitForName waits until new tokens of the user jane give a name, or are refused if name is "". The
// server remembers a good token for 10 seconds.
func (i *issuer) waitForName(t testing.TB, name string) {
	t.Helper()
	waitUntil(t, fmt.Sprintf("a token is accepted as %q", name), func(context.Context) (bool, error) {
		user, err := whoAmI(t, withToken(i.sign(t, "jane")))
		if err != nil && !apierrors.IsUnauthorized(err) {
			return false, err
		}
		return user.Username == name, nil
	})
}

// waitForName waits until the caller with a token has a name, or until the token is refused if
// name is "".
func waitForName(t testing.TB, token, name string) {
	t.Helper()
	waitUntil(t, fmt.Sprintf("the token is accepted as %q", name), func(context.Context) (bool, error) {
		user, err := whoAmI(t, withToken(token))
		if err != nil && !apierrors.IsUnauthorized(err) {
			return false, err
		}
		return user.Username == name, nil
	})
}

// TestIssuers_ChangeWhileServerRuns adds, changes and removes an issuer of tokens.
func TestIssuers_ChangeWhileServerRuns(t *testing.T) {
	i := newIssuer(t)
	token := i.sign(t, "jane", "platform")
	if _, err := whoAmI(t, withToken(token)); !apierrors.IsUnauthorized(err) {
		t.Fatalf("before the issuer is configured: got %v", err)
	}
	t.Cleanup(func() { writeIssuers(t, noIssuers) })
	writeIssuers(t, i.configure("oidc:"))
	i.waitForName(t, "oidc:jane")
	user, err := whoAmI(t, withToken(token))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"oidc:platform", "system:authenticated"}, user.Groups); diff != "" {
		t.Error(diff)
	}
	if _, err := whoAmI(t, withToken(newIssuer(t).sign(t, "jane"))); !apierrors.IsUnauthorized(err) {
		t.Errorf("a token of another issuer: got %v", err)
	}
	writeIssuers(t, "jwt: [{") // a mistake
	writeIssuers(t, i.configure("sso:"))
	i.waitForName(t, "sso:jane")
	writeIssuers(t, noIssuers)
	i.waitForName(t, "")
}
