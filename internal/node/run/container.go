//go:build linux

package run

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
)

// containerRuns says why no container of this name runs with an image, or nil.
// It is asked of the runtime: a static pod's command may be the same before and
// after its image has changed. Images are compared by their ids, for not every
// runtime says by what name one was asked for.
func (s *session) containerRuns(ctx context.Context, name, image string) error {
	out, err := s.output(ctx, "crictl", "ps", "--state", "Running", "--name", "^"+name+"$", "--output", "json")
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
	wanted, err := s.runtimeImage(ctx, image)
	if err != nil {
		return err
	}
	is := "is not running"
	for _, c := range list.Containers {
		if c.Image == wanted.ID {
			return nil
		}
		is = "runs " + c.Image
		if it, err := s.runtimeImage(ctx, c.Image); err == nil && len(it.Tags) > 0 {
			is = "runs " + path.Base(it.Tags[0])
		}
	}
	return fmt.Errorf("%s %s, expected the image %s", name, is, path.Base(image))
}

// A runtimeImage is an image as the runtime knows it.
type runtimeImage struct {
	ID   string   `json:"id"`
	Tags []string `json:"repoTags"`
}

// runtimeImage asks the runtime for an image, by its name or id.
func (s *session) runtimeImage(ctx context.Context, image string) (runtimeImage, error) {
	out, err := s.output(ctx, "crictl", "inspecti", "--quiet", "--output", "json", image)
	if err != nil {
		return runtimeImage{}, err
	}
	var answer struct {
		Status runtimeImage `json:"status"`
	}
	if err := json.Unmarshal([]byte(out), &answer); err != nil {
		return runtimeImage{}, fmt.Errorf("reading what is known of image %s: %w", image, err)
	}
	return answer.Status, nil
}
