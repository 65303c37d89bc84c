package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// maxFile limits the size of a cluster file or saved plan, in bytes, so that reading
// an endless device does not use up this machine's memory.
const maxFile = 64 << 20

// readInput reads a file; "-" is standard input. The file may be a pipe or a device.
// readInput does not wait for more data when ctx is done.
func (c *console) readInput(ctx context.Context, file string) ([]byte, string, error) {
	type content struct {
		data []byte
		dir  string
		err  error
	}
	result := make(chan content, 1)
	go func() { // ends with the program at the latest: a read cannot be cancelled
		data, dir, err := c.readWholeInput(file)
		result <- content{data, dir, err}
	}()
	select {
	case <-ctx.Done():
		return nil, "", context.Cause(ctx)
	case r := <-result:
		return r.data, r.dir, r.err
	}
}

func (c *console) readWholeInput(file string) (data []byte, dir string, err error) {
	in := c.In
	if file == "-" {
		dir, err = os.Getwd()
	} else {
		var f *os.File
		if f, err = os.Open(file); err == nil {
			defer f.Close()
			in = f
			dir, err = filepath.Abs(filepath.Dir(file))
		}
	}
	if err == nil {
		data, err = io.ReadAll(io.LimitReader(in, maxFile+1))
	}
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("the file is larger than %d MiB", maxFile>>20)
	}
	if err != nil {
		return nil, "", newProblem(idFile, "", "reading %s: %v", displayFileName(file), unwrapPath(err))
	}
	return data, dir, nil
}

// displayFileName returns a file's name for messages.
func displayFileName(file string) string {
	if file == "-" {
		return "standard input"
	}
	return file
}

// unwrapPath removes the path from an error, because the message already has it.
func unwrapPath(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
