package cli

import (
	"bufio"
	"context"
	"fmt"
	"strings"
)

// askYesNo asks a question at the terminal and returns an error unless the user agrees.
// With --yes it does not ask.
func (c *console) askYesNo(ctx context.Context, question string) error {
	switch {
	case c.yes:
		return nil
	case !c.CanAsk:
		return newProblem(idNoTerminal, "use --yes to continue without confirmation",
			"cannot ask for confirmation: standard input or standard error is not a terminal")
	}
	return c.askForAnswer(ctx, question+" [y/N] ", "y", "yes")
}

// askForAnswer asks a question and returns an error unless the user types one of the
// answers.
func (c *console) askForAnswer(ctx context.Context, question string, answers ...string) error {
	fmt.Fprint(c.Err, c.errStyle().Text(question))
	line := make(chan string, 1)
	go func() { // ends with the program at the latest: a read cannot be cancelled
		s, _ := bufio.NewReader(c.In).ReadString('\n')
		line <- s
	}()
	select {
	case <-ctx.Done():
		fmt.Fprintln(c.Err)
		return context.Cause(ctx)
	case s := <-line:
		s = strings.TrimSpace(s)
		for _, want := range answers {
			if strings.EqualFold(s, want) {
				return nil
			}
		}
	}
	return newProblem(idNotConfirmed, "", "not confirmed; nothing was changed")
}
