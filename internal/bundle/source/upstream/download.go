package upstream

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/bundle/source"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/safefile"
)

const (
	// maxSums bounds a checksum file, in bytes.
	maxSums = 1 << 20
	// attempts is how often a broken download is taken up again without
	// having got any further.
	attempts = 5
	// stall is how long a download may bring nothing.
	stall = 30 * time.Second
)

// silentError is a diagnostic of a site that does not answer.
type silentError struct {
	diag.List
	cause error
}

func (e *silentError) Error() string   { return e.List.Error() }
func (e *silentError) Unwrap() []error { return []error{source.ErrSilent, e.List, e.cause} }

func unansweredError(url string, err error) error {
	return &silentError{newProblem(IDDownload, "check the network, add --mirror, or build with --source modules",
		"downloading %s: %v", url, err), err}
}

// A downloader keeps verified files by checksum, and incomplete files so that they can be
// resumed.
type downloader struct {
	client *http.Client
	dir    string
	// delay is the first pause before another attempt; it doubles.
	delay time.Duration
}

// A download is a verified file.
type download struct {
	path, sum string
}

// checksumPath returns the path of the saved checksum of a URL. The content of a released
// URL does not change, so an existing file needs no network.
func (d *downloader) checksumPath(url string) string {
	h := sha256.Sum256([]byte(url))
	return filepath.Join(d.dir, "urls", hex.EncodeToString(h[:]))
}

// findCached returns the file of a URL from the cache, verified.
func (d *downloader) findCached(url string) (download, bool) {
	data, err := safefile.ReadFile(d.checksumPath(url), bounded.Word)
	if err != nil {
		return download{}, false
	}
	sum := strings.TrimSpace(string(data))
	path := filepath.Join(d.dir, sum)
	return download{path, sum}, sumForm.MatchString(sum) && verifyFile(path, sum) == nil
}

var (
	sumForm  = regexp.MustCompile(`^[0-9a-f]{64}$`)
	errWrong = errors.New("wrong checksum")
)

func verifyFile(path, sum string) error {
	f, err := safefile.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != sum {
		return fmt.Errorf("%w: got %s, want %s", errWrong, got, sum)
	}
	return nil
}

// getPublished returns the file at url. Its checksum is published at sumsURL.
func (d *downloader) getPublished(ctx context.Context, url, sumsURL string, tell func(source.Progress)) (download, error) {
	if got, ok := d.findCached(url); ok {
		return got, nil
	}
	sum, err := d.readChecksum(ctx, url, sumsURL)
	if err != nil {
		return download{}, err
	}
	return d.getKnown(ctx, url, sum, tell)
}

// getKnown returns the file at url. Its checksum is known.
func (d *downloader) getKnown(ctx context.Context, url, sum string, tell func(source.Progress)) (download, error) {
	if err := safefile.MkdirAll(filepath.Join(d.dir, "urls"), 0o755); err != nil {
		return download{}, err
	}
	path := filepath.Join(d.dir, sum)
	if verifyFile(path, sum) != nil {
		if err := d.fetchFile(ctx, url, path, sum, tell); err != nil {
			return download{}, err
		}
	}
	return download{path, sum}, safefile.WriteFile(d.checksumPath(url), []byte(sum+"\n"), 0o644)
}

// readChecksum reads the published checksum of a file.
func (d *downloader) readChecksum(ctx context.Context, url, sumsURL string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, sumsURL, nil)
	if err != nil {
		return "", err
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return "", unansweredError(sumsURL, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return "", unansweredError(sumsURL, errors.New(resp.Status))
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxSums))
	if err != nil {
		return "", unansweredError(sumsURL, err)
	}
	sum, ok := findSum(string(data), url[strings.LastIndex(url, "/")+1:])
	if !ok {
		return "", newProblem(IDNoChecksum,
			"choose another mirror, or use --source modules: Slipway does not use files without a published checksum",
			"%s has no checksum for %s", sumsURL, url)
	}
	return sum, nil
}

// findSum finds a file's checksum: in lines as sha256sum writes them, or alone.
func findSum(text, file string) (string, bool) {
	if alone := strings.TrimSpace(text); sumForm.MatchString(alone) {
		return alone, true
	}
	scan := bufio.NewScanner(strings.NewReader(text))
	for scan.Scan() {
		f := strings.Fields(scan.Text())
		if len(f) == 2 && sumForm.MatchString(f[0]) && strings.TrimPrefix(strings.TrimPrefix(f[1], "*"), "./") == file {
			return f[0], true
		}
	}
	return "", false
}

// fetchFile downloads url to path. A broken download is resumed, now or in a later run.
func (d *downloader) fetchFile(ctx context.Context, url, path, sum string, tell func(source.Progress)) error {
	part := path + ".part"
	delay, clean := d.delay, false
	for left := attempts; ; left-- {
		before := fileSize(part)
		err := d.resumeDownload(ctx, url, part, before, tell)
		if err == nil {
			err = verifyFile(part, sum)
		}
		switch {
		case err == nil:
			return safefile.Rename(part, path)
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.As(err, new(*safefile.ForeignError)):
			return err
		case errors.Is(err, errWrong):
			// The rest of an earlier run may belong to another file, so start again.
			if err := safefile.Remove(part); err != nil {
				return err
			}
			if clean || before == 0 {
				return newProblem(IDChecksum, "choose another mirror, or use --source modules: the file or the mirror is damaged", "%s: %v", url, err)
			}
			clean = true
		case left <= 0:
			return unansweredError(url, err)
		case fileSize(part) > before:
			left, delay = attempts, d.delay
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(delay):
			delay *= 2
		}
	}
}

func fileSize(path string) int64 {
	fi, err := safefile.Stat(path)
	if err != nil {
		return 0
	}
	return fi.Size()
}

// resumeDownload appends the server's content from offset on to part.
func (d *downloader) resumeDownload(ctx context.Context, url, part string, offset int64, tell func(source.Progress)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(stall, func() { cancel(fmt.Errorf("no data received for %s", stall)) })
	defer idle.Stop()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	if offset > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	flags := os.O_CREATE | os.O_WRONLY
	switch resp.StatusCode {
	case http.StatusPartialContent:
		flags |= os.O_APPEND
	case http.StatusOK:
		flags |= os.O_TRUNC
		offset = 0
	case http.StatusRequestedRangeNotSatisfiable:
		// The part is complete, or is longer than the file. The checksum shows which.
		return nil
	default:
		return errors.New(resp.Status)
	}
	f, err := safefile.OpenFile(part, flags, 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the cache directory no longer exists: %w", err)
	}
	if err != nil {
		return err
	}
	p := &progress{w: f, done: offset, idle: idle, tell: tell}
	if resp.ContentLength > 0 {
		p.total = offset + resp.ContentLength
	}
	_, err = io.Copy(p, resp.Body)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return errors.Join(err, f.Close())
}

// progress tells what is written, and keeps a download from counting as idle.
type progress struct {
	w           io.Writer
	done, total int64
	idle        *time.Timer
	tell        func(source.Progress)
}

func (p *progress) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	p.done += int64(n)
	p.idle.Reset(stall)
	p.tell(source.Progress{Phase: source.Fetching, Done: p.done, Total: p.total, Unit: "bytes"})
	return n, err
}
