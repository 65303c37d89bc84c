package serverbackup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"filippo.io/age"

	"slipway.dev/slipway/internal/backup"
	"slipway.dev/slipway/internal/bounded"
)

const (
	// maxRequest limits the body of a request, maxRecipients its list.
	maxRequest    = 64 << 10
	maxRecipients = 20
	// stall is the longest time in which the other side reads or sends nothing.
	stall = 2 * time.Minute
	// maxSending is the number of sets that are sent at once, and sendTime the longest time
	// for one: until then, its snapshot uses room on the disk.
	maxSending = 2
	sendTime   = time.Hour
)

// The headers of a response. The last two are trailers: they are sent after the set, so that
// their absence shows that it is incomplete.
const (
	headerName   = "Slipway-Backup-Name"
	headerKey    = "Slipway-Backup-Public-Key"
	trailerBytes = "Slipway-Backup-Bytes"
	trailerSum   = "Slipway-Backup-Sha256"
)

// A Request is the body of a request for a set.
type Request struct {
	// Recipients are the age keys for which the set is encrypted. Without any, it is not
	// encrypted.
	Recipients []string `json:"recipients,omitempty"`
}

// Handler returns the handler that sends a set to a caller. The API server has authenticated
// and authorised the caller before.
func (m *Maker) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		recipients, status, err := readRequest(w, r)
		if err != nil {
			http.Error(w, err.Error(), status)
			return
		}
		select {
		case m.sending <- struct{}{}:
			defer func() { <-m.sending }()
		default:
			http.Error(w, "other backups of this server are being sent; try again when one has ended", http.StatusConflict)
			return
		}
		if !m.tryAcquire() {
			http.Error(w, "another backup of this server is running; try again when it has ended", http.StatusConflict)
			return
		}
		// Other backups do not wait for the client: the draft has private files.
		d, err := m.draftAcquired(r.Context())
		if err != nil {
			m.reportFailure(r.Context(), w, err)
			return
		}
		defer d.discard()
		m.sendSet(r.Context(), w, d, recipients)
	})
}

// draftAcquired makes a draft and then calls release.
func (m *Maker) draftAcquired(ctx context.Context) (*draft, error) {
	defer m.release()
	return m.draftSet(ctx)
}

// reportFailure sends the status of a failed draft.
func (m *Maker) reportFailure(ctx context.Context, w http.ResponseWriter, err error) {
	if ctx.Err() != nil {
		return // the client has gone
	}
	m.o.Log.ErrorContext(ctx, "backup failed", "error", err)
	status := http.StatusInternalServerError
	if idOf(err) == idNoRoom {
		status = http.StatusInsufficientStorage
	}
	http.Error(w, err.Error(), status)
}

// readRequest checks a request and returns its recipients, or the status of its refusal.
func readRequest(w http.ResponseWriter, r *http.Request) ([]age.Recipient, int, error) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		return nil, http.StatusMethodNotAllowed, fmt.Errorf("method %.20q is not allowed; use POST", r.Method)
	}
	if t, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || t != "application/json" {
		return nil, http.StatusUnsupportedMediaType, errors.New("the content type of the request must be application/json")
	}
	body, err := bounded.ReadAll(r.Body, maxRequest)
	var large *bounded.LimitError
	switch {
	case errors.As(err, &large):
		return nil, http.StatusRequestEntityTooLarge, fmt.Errorf("the request has more than %d bytes", maxRequest)
	case err != nil:
		return nil, http.StatusBadRequest, fmt.Errorf("reading the request: %w", err)
	}
	var want Request
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&want); err != nil || d.More() {
		return nil, http.StatusBadRequest, errors.New(`the request is not valid JSON of the form {"recipients": ["age1…"]}`)
	}
	if len(want.Recipients) > maxRecipients {
		return nil, http.StatusBadRequest,
			fmt.Errorf("the request has %d recipients; at most %d are allowed", len(want.Recipients), maxRecipients)
	}
	recipients, err := backup.ParseRecipients(want.Recipients)
	if err != nil {
		return nil, http.StatusBadRequest, err
	}
	return recipients, 0, nil
}

// sendSet sends a set. Only the trailers of a complete set distinguish it from an incomplete
// one.
func (m *Maker) sendSet(ctx context.Context, w http.ResponseWriter, d *draft, recipients []age.Recipient) {
	end := time.Now().Add(sendTime)
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Cache-Control", "no-store")
	h.Set(headerName, fileName(nameFor(d.header, d.signer), len(recipients) > 0))
	h.Set(headerKey, d.signer.PublicKey().String())
	h.Set("Trailer", trailerBytes+", "+trailerSum)
	w.WriteHeader(http.StatusOK)
	out := &responseWriter{to: w, control: http.NewResponseController(w), end: end, sum: sha256.New()}
	if err := d.writeSet(ctx, out, recipients); err != nil {
		m.o.Log.WarnContext(ctx, "backup was not sent to its end", "error", err)
		return
	}
	h.Set(trailerBytes, strconv.FormatInt(out.bytes, 10))
	h.Set(trailerSum, hex.EncodeToString(out.sum.Sum(nil)))
}

// responseWriter writes to a client. It computes the checksum, and returns an error if the
// client reads nothing for too long, or has not read all of the set at the end.
type responseWriter struct {
	to      io.Writer
	control *http.ResponseController
	end     time.Time
	sum     hash.Hash
	bytes   int64
}

func (w *responseWriter) Write(p []byte) (int, error) {
	deadline := time.Now().Add(stall)
	if deadline.After(w.end) {
		deadline = w.end
	}
	err := w.control.SetWriteDeadline(deadline)
	if err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, err
	}
	n, err := w.to.Write(p)
	w.bytes += int64(n)
	_, _ = w.sum.Write(p[:n]) // never fails
	return n, err
}
