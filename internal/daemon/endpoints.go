package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/records"
	"slipway.dev/slipway/internal/server/controlplane"
	"slipway.dev/slipway/internal/server/keyrotation"
	"slipway.dev/slipway/internal/server/keys"
	"slipway.dev/slipway/internal/server/rest"
	"slipway.dev/slipway/internal/server/serverbackup"
)

// The paths of the server's own endpoints, below controlplane.PathPrefix. Only administrators
// may use them: a role must name the path.
const (
	pathBackup  = "/server/backup"
	pathRelease = "/server/release"
	pathRotate  = "/server/rotate-encryption-key"
)

const (
	// maxRequest limits the body of a request.
	maxRequest = 1 << 20
	// rotateTime limits a rotation of the encryption key.
	rotateTime = 30 * time.Minute
)

// endpoints serves the commands that act inside the running server.
type endpoints struct {
	keys     *keys.Keys
	external bool // the server uses an external etcd
	backups  *serverbackup.Maker
	log      *slog.Logger
	server   atomic.Pointer[controlplane.Server]
	rotating sync.Mutex
}

// setServer makes the endpoints available. Before that, they respond that the server starts.
func (e *endpoints) setServer(s *controlplane.Server) { e.server.Store(s) }

// subresources returns the parts of objects that the server serves. settings open the records.
func (e *endpoints) subresources(settings *controllerSettings) map[string]controlplane.Subresource {
	open := sync.OnceValue(func() func(string) (records.Backend, error) {
		return openRecords(settings.recordsConfig(e.server.Load().LoopbackConfig()))
	})
	plans := rest.Plans{OpenRecords: func(namespace string) (records.Backend, error) {
		if e.server.Load() == nil {
			return nil, apierrors.NewServiceUnavailable("the server is starting")
		}
		return open()(namespace)
	}}
	return map[string]controlplane.Subresource{rest.PlanResource: plans.Get}
}

// handlers returns the handlers by path.
func (e *endpoints) handlers() map[string]http.Handler {
	return map[string]http.Handler{
		pathBackup:  e.backups.Handler(),
		pathRelease: e.serveCommand(e.releaseHold),
		pathRotate:  e.serveCommand(e.rotateKey),
	}
}

// A problem is an error with its HTTP status.
type problem struct {
	status int
	text   string
}

func (p *problem) Error() string { return p.text }

// serveCommand returns a handler for POST requests with a JSON body. The result of f is the
// response, as JSON.
func (e *endpoints) serveCommand(f func(r *http.Request, server *controlplane.Server) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		server := e.server.Load()
		var result any
		var err error
		switch {
		case r.Method != http.MethodPost:
			err = &problem{http.StatusMethodNotAllowed, "use POST"}
		case server == nil:
			err = &problem{http.StatusServiceUnavailable, "the server is starting"}
		default:
			result, err = f(r, server)
		}
		status := http.StatusOK
		if err != nil {
			status = http.StatusInternalServerError
			var known *problem
			if errors.As(err, &known) {
				status = known.status
			} else {
				e.log.Error("a request of the administrator failed", "path", r.URL.Path, "error", err)
			}
			result = map[string]string{"message": err.Error()}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(result) // the client may be gone
	})
}

// releaseHold starts the controllers that a restore has put on hold.
func (e *endpoints) releaseHold(r *http.Request, server *controlplane.Server) (any, error) {
	return struct{}{}, server.ReleaseHold(r.Context())
}

// A rotateRequest is the body of a request for a new encryption key.
type rotateRequest struct {
	// OnlyServer confirms that no other server uses the same external etcd.
	OnlyServer bool `json:"onlyServer"`
}

// rotateKey replaces the key that encrypts Secrets.
func (e *endpoints) rotateKey(r *http.Request, server *controlplane.Server) (any, error) {
	var request rotateRequest
	text, err := bounded.ReadAll(r.Body, maxRequest)
	if err != nil {
		return nil, &problem{http.StatusBadRequest, fmt.Sprintf("reading the request: %v", err)}
	}
	if err := json.Unmarshal(text, &request); err != nil {
		return nil, &problem{http.StatusBadRequest, fmt.Sprintf("reading the request: %v", err)}
	}
	if e.external && !request.OnlyServer {
		return nil, &problem{
			http.StatusConflict,
			"this server uses an external etcd, and other servers on that etcd would not get the new key. " +
				"Stop them, run 'slipwayd rotate-encryption-key --only-server', and copy the directory keys to them",
		}
	}
	if !e.rotating.TryLock() {
		return nil, &problem{http.StatusConflict, "the encryption key is being rotated already"}
	}
	defer e.rotating.Unlock()
	client, err := kubernetes.NewForConfig(server.LoopbackConfig())
	if err != nil {
		return nil, err
	}
	// A client that has gone does not interrupt the rotation.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), rotateTime)
	defer cancel()
	return keyrotation.Rotate(ctx, e.keys, server, client)
}

// Snapshot writes a snapshot of the database of the running server.
func (e *endpoints) Snapshot(ctx context.Context, to io.Writer) (serverbackup.SnapshotInfo, error) {
	server := e.server.Load()
	if server == nil {
		return serverbackup.SnapshotInfo{}, errors.New("the server is starting")
	}
	info, err := server.Snapshot(ctx, to)
	return serverbackup.SnapshotInfo(info), err
}
