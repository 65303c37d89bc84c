package transfer

import (
	"errors"
	"sync"
)

// A disk syncs several files in less time than one after the other, because a file system
// writes its journal once for all waiting files. mostWhole limits how many wait, and so
// what a crash leaves without a name.
const mostWhole = 64

// keepPart adds a complete file to the files that are renamed together.
func (r *receiver) keepPart(p *part) error {
	if r.whole = append(r.whole, p); len(r.whole) < mostWhole {
		return nil
	}
	return r.renameParts()
}

// renameParts renames complete files, after all of them are on disk. Files that cannot be
// renamed are removed.
func (r *receiver) renameParts() error {
	list := r.whole
	r.whole = nil
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i, p := range list {
		wg.Go(func() { errs[i] = errors.Join(p.file.Sync(), p.file.Close()) })
	}
	wg.Wait()
	err := errors.Join(errs...)
	for _, p := range list {
		if err != nil {
			err = errors.Join(err, r.root.Remove(p.name))
			continue
		}
		err = r.renameFinished(p.name, p.to)
	}
	return err
}
