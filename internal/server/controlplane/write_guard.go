package controlplane

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/warning"

	"slipway.dev/slipway/internal/server/diskspace"
)

const (
	// minWrite is the least size of a write, in bytes, and writeCopies how often it is on
	// disk: in etcd's log, in the database, and in pages that are free only later.
	minWrite, writeCopies = 64 << 10, 4
	// maxWrite is the largest body of a request, in bytes. The API server refuses others.
	maxWrite = 3 << 20
	// retrySeconds is when a refused client should try again, as the response suggests.
	retrySeconds = 10
	// maxRefusal limits the bytes of an error response that are held back.
	maxRefusal = 64 << 10
)

// etcdFull is the text of etcd's error for a full database.
const etcdFull = "database space exceeded"

// etcdTooLarge are the texts of errors for an object that is too large: of etcd, and of its
// client.
var etcdTooLarge = []string{"request is too large", "trying to send message larger than max"}

// A writeGuard refuses writes that the disk or the database has no room for. Reads continue,
// and so do deletions as long as possible, because they make room.
type writeGuard struct {
	dir string
	// freeBytes returns the free and all bytes of the disk.
	freeBytes func(dir string) (free, all int64, err error)
	external  bool
	// isActive reports whether writes are refused. During the start, all of the few writes are
	// the server's own, and the reserve of the database has room for them.
	isActive atomic.Bool

	pending atomic.Int64 // bytes that current writes need
	usage   atomic.Pointer[databaseUsage]
	refused chan struct{} // receives a value when a write was refused
}

func newWriteGuard(dir string, e *etcd) *writeGuard {
	return &writeGuard{dir: dir, freeBytes: diskspace.ReadFree, external: e.isExternal(), refused: make(chan struct{}, 1)}
}

// writeVerbs are the verbs that need room.
var writeVerbs = sets.New("create", "update", "patch", "delete", "deletecollection")

// wrap returns a handler that refuses writes without room.
func (g *writeGuard) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := apirequest.RequestInfoFrom(r.Context())
		if !ok || !g.isActive.Load() || !info.IsResourceRequest || !writeVerbs.Has(info.Verb) || isReview(info) {
			next.ServeHTTP(w, r)
			return
		}
		need := writeSize(r) * writeCopies
		defer g.pending.Add(-need)
		g.pending.Add(need)
		if text := g.diskRefusal(info.Verb == "delete" || info.Verb == "deletecollection"); text != "" {
			writeRefusal(w, text)
			g.reportRefusal()
			return
		}
		if u := g.usage.Load(); u != nil && u.usedPercent() >= warnPart {
			warning.AddWarning(r.Context(), "", u.String()+"; delete objects or raise --etcd-quota")
		}
		held := &heldResponse{ResponseWriter: w}
		next.ServeHTTP(held, r)
		if held.finish() {
			g.reportRefusal()
		}
	})
}

// isReview reports whether a request creates only its response: a token or a review of rights.
func isReview(info *apirequest.RequestInfo) bool {
	return info.APIGroup == authenticationv1.GroupName || info.APIGroup == authorizationv1.GroupName || info.Subresource == "token"
}

// writeSize returns the bytes that a request may write.
func writeSize(r *http.Request) int64 {
	if r.ContentLength < 0 { // not known yet
		return maxWrite
	}
	return min(max(r.ContentLength, minWrite), maxWrite)
}

// reportRefusal starts a look at the database, which may have room that is not used.
func (g *writeGuard) reportRefusal() {
	select {
	case g.refused <- struct{}{}:
	default:
	}
}

// diskRefusal returns why the disk has no room for the current writes, "" if it has. Deletions
// may use half of the reserve.
func (g *writeGuard) diskRefusal(deletes bool) string {
	if g.external {
		return ""
	}
	free, all, err := g.freeBytes(g.dir)
	if err != nil { // the disk may have room
		return ""
	}
	limit, pending := diskspace.Reserve(all), g.pending.Load()
	if deletes {
		limit, pending = limit/2, 0
	}
	if free-pending >= limit {
		return ""
	}
	return fmt.Sprintf("the disk of the server is full: %d MiB are free, and %d MiB are reserved; reads continue, "+
		"and writes continue when there is room", free>>20, limit>>20)
}

// writeRefusal writes the response for a write without room. It has no Retry-After header: with
// that, kubectl would try for minutes before it prints the reason.
func writeRefusal(w http.ResponseWriter, text string) {
	writeStatus(w, metav1.Status{
		Code: http.StatusInsufficientStorage, Reason: "InsufficientStorage", Message: text,
		Details: &metav1.StatusDetails{RetryAfterSeconds: retrySeconds},
	})
}

// writeStatus writes an error response.
func writeStatus(w http.ResponseWriter, status metav1.Status) {
	status.TypeMeta, status.Status = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, metav1.StatusFailure
	body, err := json.Marshal(status)
	if err != nil {
		body = []byte(status.Message)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Del("Content-Length")
	w.Header().Del("Content-Encoding")
	w.WriteHeader(int(status.Code))
	_, _ = w.Write(body) // the client may be gone
}

// A heldResponse holds an internal error back, because etcd's refusal for a full database
// arrives as one.
type heldResponse struct {
	http.ResponseWriter
	held   bool
	status int
	body   bytes.Buffer
}

// Unwrap returns the writer below, for http.ResponseController.
func (h *heldResponse) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// WriteHeader holds internal errors back.
func (h *heldResponse) WriteHeader(status int) {
	if status == http.StatusInternalServerError {
		h.held, h.status = true, status
		return
	}
	h.ResponseWriter.WriteHeader(status)
}

// Write writes the body of the response, or adds to the held one.
func (h *heldResponse) Write(p []byte) (int, error) {
	if !h.held {
		return h.ResponseWriter.Write(p)
	}
	if room := maxRefusal - h.body.Len(); room > 0 {
		h.body.Write(p[:min(len(p), room)])
	}
	return len(p), nil
}

// isTooLarge reports whether the database has refused an object because of its size.
func (h *heldResponse) isTooLarge() bool {
	return slices.ContainsFunc(etcdTooLarge, func(text string) bool { return bytes.Contains(h.body.Bytes(), []byte(text)) })
}

// finish sends a held response, and reports whether it was a refusal of etcd.
func (h *heldResponse) finish() bool {
	if !h.held {
		return false
	}
	if bytes.Contains(h.body.Bytes(), []byte(etcdFull)) {
		writeRefusal(h.ResponseWriter, "the database of the server is full. Reads and deletions continue, "+
			"and writes continue when there is room: delete objects, or raise --etcd-quota")
		return true
	}
	if h.isTooLarge() {
		writeStatus(h.ResponseWriter, metav1.Status{
			Code: http.StatusRequestEntityTooLarge, Reason: metav1.StatusReasonRequestEntityTooLarge,
			Message: "the object is larger than the database accepts: 1.5 MiB; split it into several objects",
		})
		return false
	}
	h.ResponseWriter.WriteHeader(h.status)
	_, _ = h.ResponseWriter.Write(h.body.Bytes()) // the client may be gone
	return false
}
