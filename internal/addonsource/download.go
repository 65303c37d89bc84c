package addonsource

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"time"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/ocitransport"
	"slipway.dev/slipway/internal/safefile"
)

// A freshness is whether a copy in the cache is as good as the current content.
type freshness bool

const (
	fresh   freshness = true  // it may have changed: the copy is used only if the source does not answer
	forever freshness = false // content with this name never changes
)

// patience limits one download.
const patience = 2 * time.Minute

// download returns the content at an address. Pinned content, and content that never
// changes, is taken from the cache if it exists.
func (w *loadRun) download(ctx context.Context, at, address, pin string, f freshness) ([]byte, error) {
	file := w.cachePath(address)
	have, err := safefile.ReadFile(file, bounded.Document)
	if err != nil {
		have = nil
	}
	if have != nil && (pin != "" && digestOf(have) == pin || pin == "" && f == forever) {
		return have, nil
	}
	text, err := w.getContent(ctx, address, pin)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if have == nil || pin != "" || !isSilent(err) {
			return nil, w.refuseAddon(IDDownload, at, "downloading "+address+": "+causeText(err),
				"save the content to a file, and name the file; only the manager downloads it, so hosts need no network for it")
		}
		w.addWarning(IDOffline, at, address+" does not answer ("+causeText(err)+"): using the earlier download, "+digestOf(have), "")
		return have, nil
	}
	if pin != "" && digestOf(text) != pin {
		return nil, w.refuseAddon(IDChecksum, at,
			fmt.Sprintf("the content of %s has the checksum %s, expected %s", address, digestOf(text), pin),
			"check the change before you write a new checksum")
	}
	if err := keepFile(file, text); err != nil {
		return nil, fmt.Errorf("saving the download: %w", err)
	}
	return text, nil
}

// cachePath returns the path of the copy of an address.
func (w *loadRun) cachePath(address string) string {
	name := sha256.Sum256([]byte(address))
	return filepath.Join(w.Cache, "addons", hex.EncodeToString(name[:]))
}

// keepFile writes a file completely or not at all.
func keepFile(file string, text []byte) error {
	if err := safefile.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	tmp, err := safefile.CreateTemp(filepath.Dir(file), ".download-*")
	if err != nil {
		return err
	}
	defer func() { _ = safefile.Remove(tmp.Name()) }() // it has been renamed by then
	if _, err := tmp.Write(text); err != nil {
		return errors.Join(err, tmp.Close())
	}
	return safefile.Commit(tmp, file)
}

// An answerError is an error response of a server.
type answerError struct{ cause error }

func (e *answerError) Error() string { return e.cause.Error() }
func (e *answerError) Unwrap() error { return e.cause }

func tooLargeError() error {
	return &answerError{fmt.Errorf("the server sends more than %d MiB", maxManifest>>20)}
}

// isSilent reports whether the source did not answer, so that the copy in the cache can be
// used.
func isSilent(err error) bool {
	var answered *answerError
	return !errors.As(err, &answered)
}

// errPlain reports content over plain HTTP without a known checksum: anyone on the path
// could replace it.
var errPlain = errors.New("plain HTTP needs a checksum: write its checksum, or use https://")

// isPlainHTTP reports whether anyone on the path to a URL could change its content.
func isPlainHTTP(u *url.URL) bool {
	return u.Scheme != "https" && !ocitransport.IsLoopback(u.Hostname())
}

// getContent downloads the content at an address. Without a pinned checksum, every hop must use
// TLS.
func (w *loadRun) getContent(ctx context.Context, address, pin string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	if pin == "" && isPlainHTTP(req.URL) {
		return nil, &answerError{errPlain}
	}
	client := http.Client{}
	if w.HTTP != nil {
		client = *w.HTTP
	}
	client.CheckRedirect = func(next *http.Request, via []*http.Request) error {
		switch {
		case pin == "" && isPlainHTTP(next.URL):
			return &answerError{errPlain}
		case len(via) >= maxRedirects:
			return &answerError{errors.New("too many redirects")}
		}
		return nil
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, &answerError{errors.New("the server returned " + res.Status)}
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxManifest+1))
	if err == nil && len(text) > maxManifest {
		err = tooLargeError()
	}
	return text, err
}

// maxRedirects limits how many redirects are followed.
const maxRedirects = 10

// causeText returns an error without the address, which the message already has.
func causeText(err error) string {
	var at *url.Error
	if errors.As(err, &at) {
		return at.Err.Error()
	}
	return err.Error()
}
