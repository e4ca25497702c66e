package model

import (
	"os"
	"testing"

	"umbra/internal/need"
)

// TestScripts runs what once broke a rule, as it was printed.
// UMBRA_SCRIPT gives another one instead.
func TestScripts(t *testing.T) {
	scripts := map[string]string{
		"killed, then a power cut before the next checkpoint": `
			A: line b 0 630
			crash 350381
			crash 574875`,
		"killed between two changes of the same bytes": `
			A: put a ""
			revert A
			crash 477838
			A: line void 0 549
			cold
			crash 792336`,
		"a revert in a directory that a user made in place of a file": `
			B: put empty/f z
			C: mv empty tmp; mv a empty
			disk: rmdir empty
			disk: put empty/f z
			revert B`,
		"a revert of a file that a user moved into a directory in its place": `
			C: mv dir tmp; mv void dir; mv tmp void
			disk: mv dir tmp; mv tmp dir/x
			revert C path void`,
		"a link in a circle on the way to a file that was written": `
			B: ln crlf dir
			A: line dir/skip.log 0 717
			A: mv dir tmp; mv crlf dir
			restart`,
		"a revert when a person made a file of a folder": `
			C: +x void
			disk: mv void tmp; mv dir void
			sync
			disk: del void; put void z
			revert C`,
		"a forced revert where another folder took the file's name": `
			B: mv crlf tmp; mv tmp void
			disk: put B/x z
			A: mv void tmp; mv B void
			revert B force`,
		"the bits of a file in a batch": `
			A: -x run.sh; line run.sh 0 442
			revert A force`,
		"a change of mode by another on a private file": `
			A: put key z
			B: +x key
			revert A`,
		"a deletion undone over the file that was put there": `
			A: mv run.sh dir/skip.log
			revert A change 32 skip
			revert A`,
		"a file that comes to nothing among others": `
			A: mv link dir/skip.log; put dir/skip.log ""
			A: mv dir/a void
			revert A`,
		"an empty folder moved into a file's place, and a file into its": `
			A: mv dir/skip.log tmp; mv empty skip.log
			revert A
			A: mv empty tmp; mv void empty
			revert A`,
		"a revert of an entry that is no more in effect": `
			A/s2: line dir/x 0 936
			revert A sub s2
			unrevert A
			revert A
			revert A change 2`,
		"an empty folder made in one that moves": `
			A: mv dir tmp; mv crlf dir; mv tmp crlf
			A: mv crlf/x dir; mkdir crlf/x
			revert A`,
		"a person's folder in one that was made": `
			C: mkdir n; put e/x ""
			disk: mkdir n/in
			revert C`,
		"an empty folder moved into one that had moved": `
			A: mv dir q
			A: mv q/sub tmp; mv empty q/sub
			revert A`,
		"an empty folder that moved along": `
			A: rmdir dir/x
			A: mkdir dir/x
			A: put m/o/p z
			A: mv m tmp; mv dir m
			revert A`,
		"a private file replaced and moved at once": `
			B: ln key nowhere; mv key run.sh
			revert B`,
		"a private file that has another name, forced": `
			C: mv key tmp; mv tmp dir/skip.log
			B: mv dir/skip.log n
			revert C force`,
		"a moved folder that was emptied and removed": `
			A: mv a tmp; mv dir a
			A: del a/skip.log
			A: rmdir a/x
			A: mv a/sub empty/f
			A: del a
			revert A`,
		"an empty folder that got a file back, and moved with it": `
			A/s2: mv dir m/o/p
			A: mv empty dir/sub
			revert A sub s2
			A: mv "no end" tmp; mv dir "no end"
			revert A`,
		"an ignored file in the way, recorded by the way": `
			A: mv dir tmp; mv bin dir; mv tmp bin
			A: rmdir bin/x
			revert A change 41 force
			revert A skip
			revert A force plan`,
		"a folder moved, and another to its place": `
			A: mv run.sh dir/x
			A: put e/x z
			A: mv dir tmp; mv e dir
			revert A`,
		"a person's link in a folder that moves back": `
			disk: mv link tmp; mv dir/sub link; mv tmp dir/sub
			C: mv dir tmp
			revert C force`,
		"a plan about a file that came and went, and came again": `
			disk: del dir/sub
			C: put dir/sub/y z
			C: mv "no end" dir/sub/y
			disk: del dir/sub/y
			revert C stale`,
		"a private file brought back under the name that another changed it by": `
			A: mv key n/in
			revert A
			B: put key z
			unrevert A
			revert A force`,
		"a person's new file in a folder that had moved": `
			A: mv dir/sub n
			disk: put n/g/h ""
			revert A`,
		"a person's link into a circle, where a folder was": `
			B: ln a a
			disk: mv link tmp; mv dir link; mv tmp dir
			sync`,
		"made, removed by another and made again, then renamed by another": `
			B: ln B/key b
			B: put B/b "end 213"
			B/s2: put B/key z
			B: del B/b
			B/s2: put B/key ""
			B: mv B/b B/empty/f
			revert B sub s2`,
		"an empty folder filled and moved at once": `
			A: put empty/g/h z; mv empty A/empty
			revert A`,
		"a person's edit of what has to make way": `
			C: del dir/x
			C: rmdir dir/sub/y
			A: mv crlf n/in
			alone A
			B: put crlf/skip.log z
			disk: mv n/in crlf/skip.log
			revert A force`,
		"a folder swapped with one of the task's own": `
			A: mv b m/o/p
			A: mv m/o tmp; mv dir m/o; mv tmp dir
			revert A`,
		"renamed by another onto the same bytes": `
			A/s2: mv "no end" bin
			A: mv bin dir/x; put dir/x "x\n"
			revert A sub s2`,
		"a link back in a circle": `
			B: ln a a
			A: rmdir link
			revert A`,
		"an empty folder in the place of one that moved, and filled": `
			A: mv dir tmp; mv empty dir
			A: put dir/sub/y z
			revert A`,
		"an empty folder that moved along with another": `
			A: mv dir/sub/y tmp; mv empty dir/sub/y; mv tmp empty
			A: mv dir/sub tmp
			revert A`,
		"a place that the same change gave to another file": `
			A/s1: mv bin dir/sub/y
			A: put A/dir/sub/y z
			A: mv link A/tmp; mv A/dir/sub link
			A: put A/crlf z
			A/s1: line dir/sub/y 0 782
			revert A change 15
			revert A sub s1`,
		"a folder that was made, emptied and moved": `
			A: put n/f z
			A: del n/f
			A: mv n m
			revert A`,
		"an empty folder moved and filled at once": `
			A: mv empty x; put x/f z
			revert A`,
		"a folder made, filled and moved at once": `
			A: put n/f z; mv n m
			revert A`,
		"folders moved into one that was made, and it moved": `
			A: mkdir n; mv dir n/dir; mv n z
			A: put n/dir/x q
			revert A`,
		"a revert that is in effect again, of what was undone once more meanwhile": `
			A: line key 0 340
			revert A
			revert A change 25
			A: mv "no end" void
			unrevert A
			revert A change 49
			A: line bin 0 603
			revert A
			A: put out.log/f z
			revert A change 44
			revert A`,
		"a folder that another one's way back would bring to where one comes back": `
			A: mv link dir/sub/y
			revert A
			A: mv dir/sub m/n
			unrevert A
			A: mv run.sh tmp; mv dir run.sh
			revert A`,
		"the same, with another's file in it": `
			A: mv dir/sub t
			B: put dir/sub/theirs q
			A: mv dir q
			revert A`,
		"a folder in a file's place, removed with what is undone already": `
			A: del void
			A/s1: mkdir void
			A/s1: del link
			A: del void
			revert A sub s1
			revert A`,
		"a file that a forced revert replaced": `
			C: line run.sh 0 128
			C: mv void run.sh
			revert C change 49 force
			revert C noext`,
		"a file where a person had removed the task's": `
			A: put empty/f z
			disk: del empty
			A: mv skip.log empty/f
			revert A force`,
		"an empty folder in an ignored file's place, under a folder that moves": `
			A: mv dir/skip.log tmp; mv tmp b
			revert A
			A: line dir/skip.log 0 486
			A: mv empty tmp; mv dir/skip.log empty; mv tmp dir/skip.log
			A: mv bin tmp
			A: put out.log z
			A: del key; put link z
			A: mv void tmp; mv dir void; mv tmp dir
			A: mv dir crlf
			revert A
			revert A change 25`,
		"a folder that leaves one which goes": `
			A: mv dir/sub empty/f
			A: mv empty/f dir/sub/y
			A: mv dir tmp
			revert A`,
		"what is in the way came before the change in its way": `
			A: mv dir tmp; mv void dir; mv tmp void
			A: put void/skip.log z
			A: del void/sub/y
			A: del void/sub
			revert A`,
		"a file on a folder's way back": `
			A: mv dir/sub/y "no end"
			A: mv dir/sub B
			A: line run.sh 0 680; put dir/skip.log z
			revert A change 57
			A: mv dir tmp; mv b dir; mv tmp b
			revert A
			unrevert A`,
		"an empty folder brought back from another name": `
			A: mv empty tmp; mv "no end" empty; mv tmp "no end"
			A: rmdir "no end"
			revert A
			revert A`,
		"a folder of others in the place of one that moved": `
			A: mv dir tmp
			B: mkdir dir
			B: mv dir q
			revert A`,
		"a file back where a person put a folder and emptied it": `
			disk: del dir/skip.log
			C: put n/in z
			revert C
			disk: mv dir n/in
			sync
			disk: del n/in/x
			C: mv n/in/sub/y e/x
			unrevert C`,
		"a file that another put over one of the same bytes, before its old folder moved": `
			C: put empty/f z
			B: mv void tmp; mv empty/f void; mv tmp empty/f; put void ""
			B: mv "no end" tmp; mv empty "no end"
			revert C`,
		"a file that came back from under another name, and later ones there": `
			A: mv link e/x
			A: mv crlf e/x
			revert A
			A/s2: put e/x z
			A: del e/x
			revert A sub s2
			revert A`,
		"two files that had one path, one brought back there after the other went": `
			A: mv run.sh dir/skip.log
			revert A
			A: del dir
			unrevert A
			revert A path dir
			revert A`,
		"a folder moved and a file to its place, then a power cut before the next checkpoint": `
			A: mv dir A/tmp; mv b dir
			crash 610105`,
		"a file and a folder that changed places, then a power cut before the next checkpoint": `
			C: mv void tmp; mv dir void; mv tmp dir
			crash 42615`,
		"a file that came back from under another's name, which came back too": `
			A: del "no end"
			revert A
			A: mv "no end" a
			unrevert A
			revert A
			unrevert A
			revert A`,
		"folder and file swapped through a third name, and back, then a power cut": `
			crash 1043777
			A: mv dir/sub tmp; mv bin dir/sub; mv tmp bin
			revert A
			crash 164312`,
		"a power cut with a removed file that had to leave its folder": `
			C: put C/void z
			B: put B/dir/x "1\n2\n3\n4\n5\n6\n7\n8\n9\n726\n"
			C: line C/void 0 866
			C: ln C/void a
			revert B
			revert B change 39
			crash 222054`,
		"a power cut with a removed folder of which nothing tells where it stood": `
			A: put dir/g/h z
			A: put key z
			revert A path dir
			A: del dir
			A: put "no end" z
			revert A change 11
			revert A
			crash 221889`,
		"a person's rename that nobody synced, and a power cut": `
			A: put dir/sub/y "\x00718\xff"
			A: put dir/sub/y z
			C/s1: line t2 30 "Cs1 51"
			disk: mv skip.log tmp; mv tmp "no end"
			sync
			crash 879206`,
		"a person's edit that no scan saw, under a rename that nobody synced": `
			disk: line crlf 0 861; mv run.sh crlf
			cold
			crash 322137`,
		"a person's rename over an ignored file, changed, then a power cut": `
			disk: mv key dir/skip.log
			A: line dir/skip.log 0 740
			sync
			crash 398687`,
		"a folder emptied and moved, then a power cut": `
			C: del dir/sub/y
			A: mv link tmp; mv dir/sub link
			crash 1034436`,
		"a file moved out of a folder and the folder elsewhere, then a power cut": `
			A: mv dir/sub/y key
			A: mv dir/sub tmp
			crash 669524`,
		"the bytes of before in a new file, a kill, and a power cut": `
			A: put void "b\n"
			crash 450838
			revert A
			A: mv void b
			unrevert A
			crash 348131
			revert A
			unrevert A
			restart
			revert A
			crash 239412
			restart
			crash 973328`,
		"a person's removal that nobody synced, and a power cut": `
			C/s2: line t1 34 "Cs2 57"
			disk: rmdir dir/skip.log; rmdir a; rmdir skip.log
			A: put skip.log z
			sync
			crash 221640`,
		"a person's folder and file swapped, then a power cut": `
			disk: mv dir tmp; mv run.sh dir; mv tmp run.sh
			A: rmdir run.sh/x
			sync
			crash 787098`,
		"a person's folder moved there and back, then a power cut": `
			disk: mv dir/sub tmp; mv tmp dir/sub
			cold
			crash 613528`,
		"a person's folder moved into new ones, then a power cut": `
			disk: mv dir/sub m/o/p
			sync
			cold
			crash 629750`,
		"a folder put in a file's place and moved, then a power cut": `
			B: mv key void
			B: mv dir/x tmp; mv dir/sub dir/x
			B: mv dir m/n
			crash 671556`,
		"a write to where a person put a file that nobody synced, then a power cut": `
			disk: mv void e/x
			disk: put "no end" z
			disk: mv a void
			C: line void 0 798
			sync
			crash 204001`,
		"a folder removed, and a power cut after another": `
			A: del dir/sub; put b z
			crash 777231
			crash 611552`,
		"folders and a link that changed places twice, back, then a power cut": `
			A: mv dir/sub tmp; mv link dir/sub; mv tmp link
			A: mv dir tmp; mv link dir; mv tmp link
			crash 825788
			revert A
			crash 210577`,
		"a person's move of a folder that a file was removed from, then a power cut": `
			C: line t2 26 "C 30"
			C: rmdir dir/sub/y
			disk: mv dir m/o/p
			C: mv m/o/p/x tmp
			sync
			crash 293146`,
		"a file in the place of a folder, moved on at once, then a power cut": `
			A: line skip.log 0 354
			A: del dir; put dir z; del link; mv dir "no end"
			crash 920637`,
		"a person's file that moves along with a folder that is brought back": `
			A: mv empty n/in
			revert A
			disk: put empty/f z
			unrevert A`,
		"a person's folder under an ignored name, brought back": `
			disk: mv b tmp; mv dir b; mv tmp dir
			C: mv b tmp; mv skip.log b; mv tmp skip.log
			sync
			revert C`,
		"a link in a circle where a folder was, then a power cut": `
			B: ln crlf dir
			A: mv crlf tmp; mv dir crlf; mv tmp dir
			crash 341969`,
		"a file moved over another out of a folder that moves, then a power cut": `
			C: mv dir/sub/y key
			A: mv a tmp; mv dir a
			disk: line run.sh 0 712
			sync
			crash 202998`,
		"a plan about a file under a link": `
			B: put m/n/g/h z
			C: mv b dir/x
			A: mv m/n/g B
			B: del B; put m/n/f z; ln B b; line a 0 609
			revert B change 31 force stale`,
		"a directory that cannot move back as one, told by the dry run too": `
			B: mv dir/sub empty; +x a
			C: mv a tmp; mv dir a; mv tmp dir
			disk: mv dir a/skip.log
			revert B force`,
		"bits that are set, and then the bytes replaced and put back": `
			B: put a "1\n2\n"
			B: +x a; put a z; put a "1\n2\n"`,
		"what a person let pass through a path, then a power cut": `
			C: line bin 0 554
			disk: mv key crlf; mv "no end" crlf
			sync
			crash 288364`,
		"a user's move of a file over another after its bits were set, then a power cut": `
			A: +x a
			disk: mv a "no end"
			sync
			crash 609763`,
		"a user's move of an ignored file, a link in its place, then a power cut": `
			disk: mv skip.log b
			A: ln skip.log a
			sync
			crash 633520`,
		"the same to a path where nothing was": `
			disk: mv skip.log tmp
			A: ln skip.log a
			sync
			crash 68497`,
		"a file in a directory's place that is taken away, then two power cuts": `
			crash 469961
			A: mv dir/sub tmp; put dir/sub "1\n2\n3\n"
			revert A
			crash 632961
			crash 850875`,
		"a person's ignored file in the way": `
			A: rmdir skip.log
			disk: put skip.log/g/h z
			sync
			revert A`,
		"power fails after an answer to who replaced an ignored file whose bits a user had just set": `
			disk: +x dir/skip.log
			sync
			C: put dir/skip.log z
			crash 806039`,
		"killed after a file was removed and its directory renamed, then a power cut": `
			B: del dir/sub/y
			B: mv dir tmp
			crash 838691
			crash 489879`,
		"power fails after a user exchanged two files and a request set the bits of one": `
			disk: mv "no end" tmp; mv run.sh "no end"; mv tmp run.sh
			disk: mv bin a
			C: put crlf "b\n"; del dir/sub/y; +x run.sh
			sync
			crash 44096`,
		"power fails after a user moved a directory with a file whose bits were not synced, and a clean stop": `
			A: +x dir/sub/y
			disk: mv dir/x tmp; mv dir/sub dir/x
			restart
			crash 569492`,
		"another's creation undone where nothing was any more": `
			B: put n z
			A: rmdir n
			B: put empty/f z
			revert B
			revert A`,
		"power fails after a file was renamed, made executable and written to": `
			B: mv key "q\t\"é\\"
			B: +x "q\t\"é\\"
			C: line "q\t\"é\\" 0 247
			crash 347817`,
		"power fails after a file was renamed and another with its bytes put in its place": `
			A: mv b tmp; put b "b\n"
			crash 330040`,
		"killed after that, then a power cut": `
			A: mv b tmp; put b "b\n"
			crash 838691
			crash 330040`,
		"the bits of a file that another replaced, where yet another has its name by now": `
			C: mv key dir/sub/y
			B: mv "no end" dir/sub/y
			A: mv dir/sub/y tmp; mv bin dir/sub/y; mv tmp bin
			revert C force`,
		"a directory goes back to where a file of it already is": `
			A: put dir/sub/y z
			A: mv dir empty
			A: put n z
			revert A change 31
			revert A`,
		"a directory that only its ignored files are left in is renamed, and written to under the old name": `
			A: del dir/sub/y; mv dir n/in
			A: put dir/sub/y z
			revert A`,
	}
	if s := os.Getenv("UMBRA_SCRIPT"); s != "" {
		scripts = map[string]string{"given": s}
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			steps, err := parse(script)
			need.NoError(t, err)
			for _, inMemory := range []bool{true, false} {
				if ran, err := play(inMemory, steps); err != nil {
					t.Errorf("in memory %t: %v\nafter\n%s", inMemory, err, show(ran))
				}
			}
		})
	}
}

// TestParse: what is printed is read back.
func TestParse(t *testing.T) {
	text := `	A/s1: put "q\t" "1\r\n;\x00"; mv a b; line t1 3 x; +x run.sh
	disk: del dir/sub
	alone -
	revert A path "no end" force noext plan
	revert B change 7
	crash 12
	cold
`
	steps, err := parse(text)
	if err != nil || show(steps) != text {
		t.Fatalf("%v\n%s", err, show(steps))
	}
}
