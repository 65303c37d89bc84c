// Package adminclient connects the commands of slipwayd to a server that runs on the same
// data directory, as its administrator.
package adminclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"slipway.dev/slipway/internal/bounded"
	"slipway.dev/slipway/internal/diag"
	"slipway.dev/slipway/internal/safefile"
	"slipway.dev/slipway/internal/server/certificates"
	"slipway.dev/slipway/internal/server/datadir"
)

const (
	idNotRunning = "server-not-running"
	idUnreadable = "server-admin-kubeconfig"
	idRefused    = "server-request-refused"

	// maxKubeconfig and maxResponse limit the bytes that are read into memory.
	maxKubeconfig = 1 << 20
	maxResponse   = 1 << 20
	// headerTime is the time in which the server must begin its response.
	headerTime = 31 * time.Minute // a rotation of the encryption key may take 30
)

// Open returns the configuration of a client with all rights on the server that runs on a data
// directory. If none runs, the error is a refusal.
func Open(dir string) (*rest.Config, error) {
	if _, err := datadir.ReadInfo(dir); err != nil {
		return nil, err
	}
	holder, err := datadir.ReadHolder(dir)
	if errors.Is(err, datadir.ErrNotRunning) || err == nil && holder.Address == "" {
		return nil, diag.Refuse(idNotRunning, fmt.Sprintf("no server runs on %s", dir),
			"start the server: slipwayd server --data-dir "+dir)
	}
	if err != nil {
		return nil, err
	}
	file := certificates.AdminKubeconfigIn(filepath.Join(dir, "pki"))
	text, err := safefile.ReadFile(file, maxKubeconfig)
	if err != nil {
		return nil, diag.Refuse(idUnreadable, fmt.Sprintf("cannot read the kubeconfig of the administrator: %v", err),
			"run the command as the user who owns "+dir)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(text)
	if err != nil {
		return nil, diag.Refuse(idUnreadable, fmt.Sprintf("%s is not valid: %v", file, err),
			"start the server again: it makes the file again")
	}
	config.Host = "https://" + holder.Address
	config.UserAgent = "slipwayd"
	return config, nil
}

// Post sends a request to a path of the server and returns the body of the response, which the
// caller must close. A response with an error is returned as one.
func Post(ctx context.Context, config *rest.Config, path string, body any) (io.ReadCloser, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(headerTime, func() { cancel(fmt.Errorf("the server has not responded within %s", headerTime)) })
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, config.Host+path, bytes.NewReader(text))
	if err != nil {
		cancel(nil)
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := client.Do(request)
	timer.Stop()
	if err != nil {
		err = errors.Join(context.Cause(ctx), err)
		cancel(nil)
		return nil, fmt.Errorf("asking the server at %s: %w", config.Host, err)
	}
	if response.StatusCode/100 == 2 {
		return &responseBody{response.Body, cancel}, nil
	}
	defer cancel(nil)
	defer response.Body.Close()
	return nil, readRefusal(response)
}

// A responseBody is a body whose request ends with it.
type responseBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

// Close ends the request.
func (b *responseBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}

// readRefusal returns the error of a response.
func readRefusal(response *http.Response) error {
	text, err := bounded.ReadAll(response.Body, maxResponse)
	if err != nil {
		return fmt.Errorf("reading the response of the server: %w", err)
	}
	message := string(bytes.TrimSpace(text))
	var status metav1.Status
	if json.Unmarshal(text, &status) == nil && status.Message != "" {
		message = status.Message
	}
	if response.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("the server at %s failed (%d): %s", response.Request.URL.Host, response.StatusCode, message)
	}
	return diag.Refuse(idRefused, fmt.Sprintf("the server refused the request (%d): %s", response.StatusCode, message),
		"correct the request")
}
