package archtest

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Groups of rules, as the baseline counts them.
const (
	groupWords    = "words"    // phrases to avoid, in texts that users see
	groupTerms    = "terms"    // words that have a standard word
	groupLength   = "length"   // sentences that are too long
	groupTitles   = "titles"   // titles of tasks, Short of commands
	groupComments = "comments" // phrases and words in comments
	groupTests    = "tests"    // phrases and words in comments of tests
)

const (
	maxWords         = 25 // in a sentence of a message
	maxMarkdownWords = 30
	maxTitleWords    = 6
	maxShort         = 60 // characters
)

// titleVerbs are the verbs that a title of a task may begin with.
var titleVerbs = strings.Fields(`
	add allow apply approve archive back block bootstrap check clean clear close compact configure connect copy cordon
	create defragment delete deploy derive detach disable distribute download drain enable encrypt enforce ensure evict
	export fetch find finish generate grant import initialize inspect install join label list load log make mark migrate
	mount move prefetch prepare protect prune publish pull push query re-encrypt read reboot record recover recreate
	refresh register reissue release reload remove rename render renew repair replace request reset restart restore
	restrict resume revoke roll rotate run save schedule select send set sign spread stage start stop switch sync taint
	take trust turn uncordon uninstall unmount update upgrade upload validate verify wait write`)

// A finding is one place that breaks a rule.
type finding struct {
	file  string
	line  int
	group string
	rule  string
	text  string // what breaks it
	fix   string
}

func (f finding) String() string {
	return fmt.Sprintf("%s:%d: %s: %s  [%s]", f.file, f.line, f.rule, strings.Join(strings.Fields(f.text), " "), f.fix)
}

// languageFindings returns all places in the tree that break a rule of
// language, by package or Markdown file.
func languageFindings(tree *sourceTree) map[string][]finding {
	out := map[string][]finding{}
	for where, texts := range textsOf(tree) {
		for _, t := range texts {
			out[where] = append(out[where], t.findProblems()...)
		}
		slices.SortStableFunc(out[where], func(a, b finding) int { return cmp.Or(cmp.Compare(a.file, b.file), a.line-b.line) })
	}
	return out
}

// messageTable is the package whose strings are Markdown. docs/guide/errors.md has all of
// them, and its findings count.
const messageTable = "internal/diag/messages"

// textsOf returns the prose of the tree, by package or Markdown file.
func textsOf(tree *sourceTree) map[string][]text {
	out := map[string][]text{}
	params, declared := parametersOf(tree.files), declaredNames(tree.files)
	for _, f := range tree.files {
		if f.generated {
			continue
		}
		out[f.dir] = append(out[f.dir], commentsOf(f, declared[f.dir])...)
		if !f.test && f.dir != messageTable {
			out[f.dir] = append(out[f.dir], stringsOf(f, params)...)
		}
	}
	for _, page := range tree.markdown {
		out[page.name] = append(out[page.name], markdownTexts(page)...)
	}
	return out
}

// findProblems returns what is wrong with the text.
func (t text) findProblems() []finding {
	words, long := groupWords, maxWords
	other := groupTerms
	var out []finding
	switch t.kind {
	case kindComment:
		words, other, long = groupComments, groupComments, 0
	case kindTest:
		words, other, long = groupTests, groupTests, 0
	case kindMarkdown, kindCell:
		long = maxMarkdownWords
	case kindTitle, kindShort:
		out, long = t.titleFindings(), 0
	case kindExample:
		long = 0
	case kindMessage:
	}
	out = append(out, t.findPhrases(avoid, words)...)
	out = append(out, t.findPhrases(terms, other)...)
	if t.kind == kindComment || t.kind == kindTest {
		out = append(out, t.findPhrases(commentWords, words)...)
	}
	if long > 0 {
		out = append(out, t.longSentences(long)...)
	}
	return out
}

func (t text) findPhrases(rules []wordRule, group string) []finding {
	var out []finding
	for _, r := range rules {
		for _, at := range r.findMatches(t.body) {
			if t.isIdentifier(at) {
				continue
			}
			from, to := widenHit(t.body, at)
			out = append(out, finding{t.file, t.lineAt(at[0]), group, r.name, t.body[from:to], r.instead})
		}
	}
	return out
}

// widenHit widens a hit so that a reader recognizes the sentence.
func widenHit(body string, at [2]int) (from, to int) {
	const margin = 40
	from, to = max(0, at[0]-margin), min(len(body), max(at[1], min(at[1]+margin, at[0]+2*margin)))
	for from > 0 && !utf8.RuneStart(body[from]) {
		from--
	}
	for to < len(body) && !utf8.RuneStart(body[to]) {
		to++
	}
	return from, to
}

func (t text) titleFindings() []finding {
	found := func(rule, fix string) finding { return finding{t.file, t.line, groupTitles, rule, t.body, fix} }
	var out []finding
	if t.kind == kindShort {
		if n := utf8.RuneCountInString(t.body); n > maxShort {
			out = append(out, found("short", fmt.Sprintf("%d characters; the limit is %d", n, maxShort)))
		}
		return out
	}
	fields := strings.Fields(t.body)
	if !slices.Contains(titleVerbs, strings.ToLower(fields[0])) {
		out = append(out, found("title-verb", "begin with a verb of titleVerbs in findings_test.go"))
	}
	if len(fields) > maxTitleWords {
		out = append(out, found("title-length", fmt.Sprintf("%d words; the limit is %d", len(fields), maxTitleWords)))
	}
	return out
}

// sentenceEnd is the end of a sentence, or a blank line.
var sentenceEnd = regexp.MustCompile(`[.!?:]["')]?\s+|\n[ \t]*\n|\n\s*[-*] `)

func (t text) longSentences(limit int) []finding {
	var out []finding
	from := 0
	check := func(to int) {
		sentence := t.body[from:to]
		if n := len(strings.Fields(sentence)); n > limit {
			out = append(out, finding{t.file, t.lineAt(from), groupLength, "length", sentence, fmt.Sprintf("%d words; the limit is %d", n, limit)})
		}
		if t.kind != kindCell && strings.Count(sentence, ";") > 1 {
			out = append(out, finding{t.file, t.lineAt(from), groupLength, "semicolons", sentence, "one semicolon in a sentence"})
		}
	}
	for _, at := range sentenceEnd.FindAllStringIndex(t.body, -1) {
		check(at[0] + 1)
		from = at[1]
	}
	check(len(t.body))
	return out
}
