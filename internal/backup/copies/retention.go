package copies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
)

// A retention removes the copies of a host beyond the number to keep. Anyone who can write
// to a target can choose names there, but must not cause the removal of real copies: so
// only verified names count, and no copy is removed that is newer, by the target's clock,
// than a copy that is kept.
type retention struct {
	to   Target
	name Name // the new copy, which is always kept
	by   Tagger
	keep int
}

// removeBeforeCopy removes copies before the new one, if there are more than the number to keep.
func (r retention) removeBeforeCopy(ctx context.Context) (left int, err error) {
	return r.removeExcess(ctx, func(n Name) bool { return n != r.name })
}

// removeAfterCopy removes copies beyond the number after the new one.
func (r retention) removeAfterCopy(ctx context.Context) (left int, err error) {
	return r.removeExcess(ctx, func(Name) bool { return true })
}

// removeExcess removes copies beyond the number, and returns how many remain that count.
func (r retention) removeExcess(ctx context.Context, chosen func(Name) bool) (left int, err error) {
	own, err := ListCopies(ctx, r.to, r.name.ownerPrefix(), func(n Name) bool { return n.hasSameOwner(r.name) && chosen(n) })
	if err != nil {
		return 0, err
	}
	own = sortCopies(own, func(a, b Copy) int { return cmp.Or(r.rankCopy(a)-r.rankCopy(b), CompareNewestFirst(a, b)) })
	for left < len(own) && r.isCounted(own[left].Name) {
		left++
	}
	if left < r.keep {
		return left, nil
	}
	kept := own[:r.keep]
	var newer []string
	for _, c := range own[r.keep:] {
		switch counts := r.isCounted(c.Name); {
		case newerThanKept(c, kept):
			if counts {
				newer = append(newer, c.File.Name)
			}
		default:
			if failed := r.to.Remove(ctx, c.File.Name); failed != nil {
				err = errors.Join(err, failed)
			} else if counts {
				left--
			}
		}
	}
	if len(newer) > 0 {
		err = errors.Join(err,
			fmt.Errorf("by the target's clock, these copies were written after copies that are kept, although their names are older: %s",
				strings.Join(newer, ", ")))
	}
	if err != nil {
		err = fmt.Errorf("removing the oldest copies: %w", err)
	}
	return left, err
}

// rankCopy ranks the new copy first, then copies that count, then the others.
func (r retention) rankCopy(c Copy) int {
	switch {
	case c.Name == r.name:
		return 0
	case r.isCounted(c.Name):
		return 1
	}
	return 2
}

// isCounted reports whether a name counts towards the number to keep.
func (r retention) isCounted(n Name) bool { return n == r.name || r.by == nil || n.IsVerified(r.by) }

// newerThanKept reports whether a copy was written after one of the kept copies, by the
// target's clock. Unknown times are not compared.
func newerThanKept(c Copy, kept []Copy) bool {
	for _, k := range kept {
		if !k.Modified.IsZero() && c.Modified.After(k.Modified) {
			return true
		}
	}
	return false
}
