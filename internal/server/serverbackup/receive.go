package serverbackup

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"filippo.io/age"

	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
)

const (
	// headerTime is the time in which the server must begin its response: it takes the
	// snapshot before.
	headerTime = 5 * time.Minute
	// maxReceived limits the bytes of a set. The database of etcd has at most some GiB.
	maxReceived = 64 << 30
)

// A Received is a set that was received from a server.
type Received struct {
	File   string `json:"file"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	// PublicKey verifies the set. The server has sent it.
	PublicKey string `json:"publicKey"`
	Encrypted bool   `json:"encrypted"`
}

// A Call is a request to a server for a set.
type Call struct {
	Client *http.Client
	// URL is the URL of the endpoint.
	URL string
	// Recipients are the age keys for which the set is encrypted.
	Recipients []string
	// Out is the file for the set, or an existing directory, in which the set gets the name
	// that the server proposes. An existing file is never overwritten.
	Out string
}

// Receive requests a set and writes it to a file of mode 0600. The file gets its name when
// the set is complete. A set without encryption is also read and verified.
func Receive(ctx context.Context, c Call) (out Received, err error) {
	if _, err := backup.ParseRecipients(c.Recipients); err != nil {
		return out, diag.Refuse(idBadRequest, err.Error(), "write the public key that age-keygen prints: age1…")
	}
	dir, isDir := filepath.Dir(c.Out), false
	switch info, err := os.Stat(c.Out); {
	case err == nil && info.IsDir():
		dir, isDir = c.Out, true
	case err == nil:
		return out, explainSet(c.Out, newError(backup.Exists, "the file already exists"))
	}
	f, err := os.CreateTemp(dir, backup.Parts) // 0600
	if err != nil {
		return out, fmt.Errorf("creating the file for the backup: %w", explainRoom(err))
	}
	defer func() {
		_ = f.Close() // closed already, unless there was an error
		_ = os.Remove(f.Name())
	}()
	out, name, err := c.requestSet(ctx, f)
	if err != nil {
		return out, explainRoom(err)
	}
	out.File = c.Out
	if isDir {
		out.File = filepath.Join(dir, name)
	}
	if out.Encrypted = len(c.Recipients) > 0; !out.Encrypted {
		if err := verifyReceived(f, out.PublicKey); err != nil {
			return out, explainSet("the received set", err)
		}
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return out, explainRoom(err)
	}
	return out, explainSet(out.File, backup.CommitFile(f.Name(), out.File))
}

// requestSet sends the request and writes the set. It returns the name that the server
// proposes.
func (c Call) requestSet(ctx context.Context, to io.Writer) (out Received, name string, err error) {
	body, err := json.Marshal(Request{Recipients: c.Recipients})
	if err != nil {
		return out, "", err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return out, "", err
	}
	q.Header.Set("Content-Type", "application/json")
	timer := time.AfterFunc(headerTime, func() { cancel(fmt.Errorf("the server has not responded within %s", headerTime)) })
	r, err := c.Client.Do(q)
	timer.Stop()
	if err != nil {
		return out, "", fmt.Errorf("requesting a backup: %w", cmp.Or(context.Cause(ctx), err))
	}
	defer r.Body.Close()
	from := &bodyReader{from: r.Body, left: maxReceived, cancel: cancel}
	if r.StatusCode != http.StatusOK {
		return out, "", refuseStatus(r, from)
	}
	sum := sha256.New()
	out.Bytes, err = io.Copy(io.MultiWriter(to, sum), from)
	if err != nil {
		return out, "", fmt.Errorf("receiving the backup: %w", cmp.Or(context.Cause(ctx), err))
	}
	out.SHA256, out.PublicKey = hex.EncodeToString(sum.Sum(nil)), r.Header.Get(headerKey)
	if r.Trailer.Get(trailerSum) != out.SHA256 || r.Trailer.Get(trailerBytes) != strconv.FormatInt(out.Bytes, 10) {
		return out, "", diag.Refuse(idIncomplete, fmt.Sprintf("the server ended the backup after %d bytes, before its end", out.Bytes),
			"look for the reason in the log of the server, and try again")
	}
	name = r.Header.Get(headerName)
	if _, encrypted, ok := parseFileName(name); !ok || encrypted != (len(c.Recipients) > 0) {
		return out, "", diag.Refuse(idBadRequest,
			fmt.Sprintf("the server proposes the file name %.120q, which is not the name of a backup", name),
			"check that the address is the address of a slipwayd")
	}
	return out, name, nil
}

// A bodyReader reads the body of a response. It cancels the request if nothing arrives for too
// long, and returns an error if the body is too large.
type bodyReader struct {
	from   io.Reader
	left   int64 // bytes until the limit
	cancel context.CancelCauseFunc
}

func (b *bodyReader) Read(p []byte) (int, error) {
	timer := time.AfterFunc(stall, func() {
		b.cancel(diag.Refuse(idIncomplete, fmt.Sprintf("the server has sent nothing for %s", stall),
			"check the network and the log of the server, and try again"))
	})
	n, err := b.from.Read(p)
	timer.Stop()
	if b.left -= int64(n); b.left < 0 {
		return 0, diag.Refuse(idIncomplete, fmt.Sprintf("the server sends more than the largest backup of %d GiB", maxReceived>>30),
			"check that the address is the address of a slipwayd")
	}
	return n, err
}

// refuseStatus returns the refusal of the server.
func refuseStatus(r *http.Response, body io.Reader) error {
	const longest = 4 << 10
	text, _ := bounded.ReadAll(body, longest) // an incomplete text is better than none
	message := strings.TrimSpace(string(text))
	switch r.StatusCode {
	case http.StatusConflict:
		return diag.Refuse(idRunning, "another backup of this server is running or being sent", "try again when it has ended")
	case http.StatusInsufficientStorage:
		return diag.Refuse(idNoRoom, "the server has no room for the snapshot: "+message, "free space on the disk of the server")
	}
	return diag.Refuse(idBadRequest, fmt.Sprintf("the server refused the backup (%s): %.1000s", r.Status, message),
		"correct the request, or ask the administrator of the server for the permission")
}

// verifyReceived reads a received set and checks that the key of the server signed it.
func verifyReceived(f *os.File, publicKey string) error {
	key, err := backup.ParsePublicKey(publicKey)
	if err != nil {
		return err
	}
	size, err := f.Seek(0, io.SeekCurrent)
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return err
	}
	_, err = readSet(f, size, []age.Identity(nil), func(h *Header) error {
		if !key.IsSignerOf(h.Signature) {
			return newError(backup.Damaged, "the signature is not by the key of the server")
		}
		return nil
	}, nil)
	return err
}
