package controlplane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/klog/v2"
)

// RedirectLogs sends the logs of the Kubernetes libraries to log: warnings and errors, as far
// as an operator can act on them. A process calls it once, before it starts a server.
func RedirectLogs(log *slog.Logger) {
	klog.LogToStderr(false)
	klog.SetSlogLogger(slog.New(&libraryLog{log.Handler()}))
}

// expectedMessages are parts of messages that the libraries log although nothing is wrong.
var expectedMessages = []string{
	// At the first start: the namespace comes a moment later, and there is no manifest.
	"namespaces \"kube-system\" not found",
	"The manifest file is empty",
	// etcd serves only this process.
	"Running http and grpc server on single port",
	"simple token is not cryptographically signed",
	"pending configuration changes to apply",
	// At each stop.
	"use of closed network connection",
	"http: Server closed",
	"mux: server closed",
	"Unable to remove peer endpoint leases",
	"context canceled",
	"time to stop HTTP server",
	"Failed to shutdown server", // its connections end with the process
	// Between the two renames of a renewed certificate; the next look succeeds.
	"private key does not match public key",
	"Failed to remove file watch",
	// For each request with a wrong token: anyone who can connect could fill the log.
	"Unable to authenticate the request",
}

// isExpected reports whether a message is one of them.
func isExpected(text string) bool {
	return slices.ContainsFunc(expectedMessages, func(known string) bool { return strings.Contains(text, known) })
}

// A libraryLog is a log handler that passes warnings and errors of the libraries on.
type libraryLog struct{ slog.Handler }

// Enabled reports whether a level is logged.
func (l *libraryLog) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && l.Handler.Enabled(ctx, level)
}

// Handle logs a record, unless its message is expected.
func (l *libraryLog) Handle(ctx context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += " " + a.Value.String()
		return true
	})
	if isExpected(text) {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

// WithAttrs returns the handler with attributes.
func (l *libraryLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &libraryLog{l.Handler.WithAttrs(attrs)}
}

// WithGroup returns the handler with a group.
func (l *libraryLog) WithGroup(name string) slog.Handler {
	return &libraryLog{l.Handler.WithGroup(name)}
}

// newEtcdLog returns a logger for etcd that writes warnings and errors to log. A fatal error
// or panic of etcd is sent to failed, and ends only the goroutine of etcd, not the process.
func newEtcdLog(log *slog.Logger, failed chan<- error) *zap.Logger {
	hook := fatalHook{failed}
	return zap.New(&etcdCore{log: log.With("component", "etcd")}, zap.WithFatalHook(hook), zap.WithPanicHook(hook))
}

// An etcdCore writes the records of etcd to a slog.Logger.
type etcdCore struct {
	log    *slog.Logger
	fields []zapcore.Field
}

// Enabled reports whether a level is logged.
func (c *etcdCore) Enabled(level zapcore.Level) bool { return level >= zapcore.WarnLevel }

// With returns the core with fields.
func (c *etcdCore) With(fields []zapcore.Field) zapcore.Core {
	return &etcdCore{c.log, append(c.fields[:len(c.fields):len(c.fields)], fields...)}
}

// Check adds the core to an enabled entry.
func (c *etcdCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write logs an entry.
func (c *etcdCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	encoder := zapcore.NewMapObjectEncoder()
	for _, f := range append(c.fields[:len(c.fields):len(c.fields)], fields...) {
		f.AddTo(encoder)
	}
	var attrs []any
	for _, name := range slices.Sorted(maps.Keys(encoder.Fields)) {
		attrs = append(attrs, slog.Any(name, encoder.Fields[name]))
	}
	if cause, _ := encoder.Fields["error"].(string); isExpected(e.Message + " " + cause) {
		return nil
	}
	if e.Level > zapcore.WarnLevel {
		c.log.Error(e.Message, attrs...)
	} else {
		c.log.Warn(e.Message, attrs...)
	}
	return nil
}

// Sync does nothing: slog does not buffer.
func (c *etcdCore) Sync() error { return nil }

// A fatalHook reports a fatal error of etcd.
type fatalHook struct{ failed chan<- error }

// OnWrite reports the error and ends the goroutine.
func (h fatalHook) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	select {
	case h.failed <- newFatalError(e.Message, fields):
	default:
	}
	runtime.Goexit()
}

// newFatalError returns the error of a fatal entry.
func newFatalError(message string, fields []zapcore.Field) error {
	for _, f := range fields {
		if cause, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			return fmt.Errorf("%s: %w", message, cause)
		}
	}
	return errors.New(message)
}
