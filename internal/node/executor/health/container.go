//go:build linux

package health

import (
	"context"
	"encoding/json"
	"fmt"
	"path"

	"slipway.dev/slipway/internal/node/executor/host"
)

// containerRuns returns why no container with this name runs an image, or nil. It asks
// the runtime, because a static pod can have the same command before and after a change
// of its image. Images are compared by their IDs, because not every runtime returns the
// requested name.
func containerRuns(ctx context.Context, h *host.Host, name, image string) error {
	out, err := h.Output(ctx, "crictl", "ps", "--state", "Running", "--name", "^"+name+"$", "--output", "json")
	if err != nil {
		return err
	}
	var list struct {
		Containers []struct {
			Image string `json:"imageRef"`
		} `json:"containers"`
	}
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		return fmt.Errorf("reading the list of containers: %w", err)
	}
	wanted, err := readRuntimeImage(ctx, h, image)
	if err != nil {
		return err
	}
	is := "is not running"
	for _, c := range list.Containers {
		if c.Image == wanted.ID {
			return nil
		}
		is = "runs " + c.Image
		if it, err := readRuntimeImage(ctx, h, c.Image); err == nil && len(it.Tags) > 0 {
			is = "runs " + path.Base(it.Tags[0])
		}
	}
	return fmt.Errorf("%s %s, expected the image %s", name, is, path.Base(image))
}

// A runtimeImage is an image in the container runtime.
type runtimeImage struct {
	ID   string   `json:"id"`
	Tags []string `json:"repoTags"`
}

// readRuntimeImage reads an image from the runtime, by its name or ID.
func readRuntimeImage(ctx context.Context, h *host.Host, image string) (runtimeImage, error) {
	out, err := h.Output(ctx, "crictl", "inspecti", "--quiet", "--output", "json", image)
	if err != nil {
		return runtimeImage{}, err
	}
	var answer struct {
		Status runtimeImage `json:"status"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		return runtimeImage{}, fmt.Errorf("inspecting image %s: %w", image, err)
	}
	return answer.Status, nil
}
