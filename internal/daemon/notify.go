package daemon

import (
	"context"
	"net"
	"os"
	"time"
)

const (
	// notifyVariable has the socket at which systemd receives the state of a service.
	notifyVariable = "NOTIFY_SOCKET"
	notifyTime     = time.Second
)

// A notifier reports the state of the server to systemd. Without systemd, it does nothing.
type notifier struct{ socket string }

// newNotifier takes the socket out of the environment: the library of the API server would
// report that the service is ready before it is.
func newNotifier() notifier {
	n := notifier{os.Getenv(notifyVariable)}
	_ = os.Unsetenv(notifyVariable) // it fails only for an invalid name
	return n
}

// send sends a state, such as "READY=1". A failure is returned for the log: systemd then ends
// the service after its own deadline.
func (n notifier) send(ctx context.Context, state string) error {
	if n.socket == "" {
		return nil
	}
	dialer := net.Dialer{Timeout: notifyTime}
	conn, err := dialer.DialContext(context.WithoutCancel(ctx), "unixgram", n.socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}
