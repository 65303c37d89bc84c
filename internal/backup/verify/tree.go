package verify

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A bbolt page begins with its number, its kind, the number of its elements, and the number
// of overflow pages. The elements follow, with the positions of keys and values.
const (
	headBytes    = 16
	elementBytes = 16
	branchPage   = 1
	leafPage     = 2
	// bucketElement marks a leaf element whose value is a bucket: its root page and a
	// number; if the root is 0, the page itself follows.
	bucketElement = 1
	bucketBytes   = 16
	// maxPage is the largest memory page size on any system, in bytes.
	maxPage = 64 << 10
)

// A tree records the visited pages of a database.
type tree struct {
	file  io.ReaderAt
	size  int64 // of a page, in bytes
	seen  []bool
	ahead []uint64
}

// checkTree returns an error if the pages of a database do not form a tree or refer to
// missing pages: bbolt follows every reference, even endlessly in a cycle.
func checkTree(f io.ReaderAt, bytes, pageSize int64, root uint64) error {
	if pageSize < sector || pageSize > maxPage {
		return fmt.Errorf("its pages have %d bytes", pageSize)
	}
	t := &tree{file: f, size: pageSize, seen: make([]bool, bytes/pageSize), ahead: []uint64{root}}
	for len(t.ahead) > 0 {
		id := t.ahead[len(t.ahead)-1]
		t.ahead = t.ahead[:len(t.ahead)-1]
		if err := t.checkPage(id); err != nil {
			return fmt.Errorf("page %d: %w", id, err)
		}
	}
	return nil
}

func (t *tree) checkPage(id uint64) error {
	all := uint64(len(t.seen))
	if id >= all {
		return fmt.Errorf("it does not exist: there are %d pages", all)
	}
	at := int64(id) * t.size
	head, err := t.readBytes(at, headBytes, t.size)
	if err != nil {
		return err
	}
	more := uint64(binary.LittleEndian.Uint32(head[12:]))
	if more >= all-id {
		return fmt.Errorf("it has %d overflow pages, but there are only %d pages", more, all)
	}
	for n := id; n <= id+more; n++ {
		if t.seen[n] {
			return fmt.Errorf("page %d is used twice", n)
		}
		t.seen[n] = true
	}
	return t.checkNode(at, t.size*int64(1+more), false)
}

// checkNode checks the elements of a page, or of a bucket within a page.
func (t *tree) checkNode(at, length int64, within bool) error {
	head, err := t.readBytes(at, headBytes, length)
	if err != nil {
		return err
	}
	kind, count := binary.LittleEndian.Uint16(head[8:]), int64(binary.LittleEndian.Uint16(head[10:]))
	if kind != leafPage && (kind != branchPage || within || count == 0) {
		return fmt.Errorf("it has kind %d with %d elements", kind, count)
	}
	raw, err := t.readBytes(at, headBytes+count*elementBytes, length)
	if err != nil {
		return err
	}
	for from := int64(headBytes); from < int64(len(raw)); from += elementBytes {
		number := func(i int64) int64 { return int64(binary.LittleEndian.Uint32(raw[from+4*i:])) }
		if kind == branchPage {
			if from+number(0)+number(1) > length {
				return fmt.Errorf("a key extends past the end: there are only %d bytes", length)
			}
			t.ahead = append(t.ahead, binary.LittleEndian.Uint64(raw[from+8:]))
			continue
		}
		value, valueBytes := from+number(1)+number(2), number(3)
		if value+valueBytes > length {
			return fmt.Errorf("a value extends past the end: there are only %d bytes", length)
		}
		if number(0)&bucketElement == 0 {
			continue
		}
		if within {
			return errors.New("it has a bucket within an inline bucket")
		}
		if err := t.checkBucket(at+value, valueBytes); err != nil {
			return err
		}
	}
	return nil
}

// checkBucket queues the root page of a bucket, or checks the page in its value.
func (t *tree) checkBucket(at, length int64) error {
	head, err := t.readBytes(at, bucketBytes, length)
	if err != nil {
		return err
	}
	if root := binary.LittleEndian.Uint64(head); root != 0 {
		t.ahead = append(t.ahead, root)
		return nil
	}
	return t.checkNode(at+bucketBytes, length-bucketBytes, true)
}

// readBytes returns n bytes from at, which must fit into length.
func (t *tree) readBytes(at, n, length int64) ([]byte, error) {
	if n > length {
		return nil, fmt.Errorf("%d bytes are needed, but there are only %d", n, length)
	}
	out := make([]byte, n)
	_, err := t.file.ReadAt(out, at)
	return out, err
}
