"""Every timing constant of a conversation, each with its reason. All in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """How long the stages of a turn wait.

    Attributes:
        onset_ms: voiced sound before the user counts as speaking. Two detector windows: one alone is often a click.
        barge_in_ms: the same while the assistant answers, and the detector must be surer then (`_SURE_SPEECH`). Four
            windows stopped up to 335 ms after the first sound of a word that begins with an s, three up to 290.
        onset_gap_ms: unvoiced sound that ends a run of voiced sound before it counted as speaking.
        tail_ms: sound kept behind the last voiced window for transcription: soft last consonants.
        aside_left_ms: an interruption is no "mhm" when less than this of the answer is left to hear: a "yes" then
            answers it.
        aside_ms: speech over the answer that goes on for longer than this is no "mhm" or "right", and the answer is
            given up before its words are known.
        soft_end_ms: silence after which the turn may be over: work on an answer starts, held back. Four windows; with
            three, half of all stops between two words start work in vain.
        ahead_ms: silence after which what was said is transcribed with care: half of the above, so that the words are
            nearly there when work on an answer starts.
        resume_ms: voiced sound that takes such a guess back: one window alone is a click or a breath.
        shortest_wait_ms, longest_wait_ms: silence that ends a turn which surely is over, and one which surely is not.
            While the answer is still being made the longest one counts: to listen on costs nothing.
            People take 200 ms from each other (Stivers et al. 2009); after 700 they wonder whether they were heard.
        dictation_wait_ms: for somebody who is dictating or spelling, who pauses between groups of digits.
        patient_wait_ms: for words that cannot be all ("to the", "um"): nobody waits for an answer to them. Also the
            longest that anybody's earlier pauses are worth.
        end_silence_ms: silence that ends a turn where the client wants nothing but silence to count. The Realtime
            protocol's own default; with nothing else to go by, less cuts people off in the middle of a sentence.
        prefix_ms: sound kept from before the onset: soft first consonants come before the detector is sure.
        longest_turn_ms: a turn is ended here even if sound goes on (a radio, a fan that sounds like speech).
        shortest_commit_ms: less audio than this cannot be committed by hand (the Realtime protocol's rule).
        partial_every_ms: new speech before another partial transcript is made, and `partial_share` times as long as
            the last one took, where that is longer: the careful one at the end should find the recognizer free.
        clause_within_ms: when the first clause of a spoken answer is wanted, once the transcript is there: what is left
            of a second behind the wait, the transcription and the synthesis. A brain that can hurries for it.
        playback_slack_ms: how much later than our own estimate the client may finish playing: network and its buffer.
    """

    onset_ms: int = 64
    barge_in_ms: int = 64
    onset_gap_ms: int = 96
    tail_ms: int = 100
    aside_left_ms: int = 700
    aside_ms: int = 800
    soft_end_ms: int = 128
    ahead_ms: int = 64
    resume_ms: int = 64
    shortest_wait_ms: int = 250
    longest_wait_ms: int = 700
    dictation_wait_ms: int = 800
    patient_wait_ms: int = 1400
    end_silence_ms: int = 500
    prefix_ms: int = 300
    longest_turn_ms: int = 120_000
    shortest_commit_ms: int = 100
    partial_every_ms: int = 240
    partial_share: float = 3.0
    clause_within_ms: int = 200
    playback_slack_ms: int = 300
