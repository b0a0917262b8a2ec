"""The timing constants of a conversation, each with its reason. All in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Timing:
    """How long each part of a turn waits.

    Attributes:
        onset_ms: voiced sound before the user counts as speaking. Two detector windows: one alone is often a click.
        barge_in_ms: the same while the assistant responds, where the speech threshold is higher (`_BARGE_IN_THRESHOLD`
            in the turn machine). Measured on words that begin with an s, the response stopped up to 335 ms after the
            first sound with four windows, and up to 290 ms with three.
        onset_gap_ms: unvoiced sound that ends a run of voiced sound before it counted as speaking.
        tail_ms: sound kept after the last voiced window for transcription: soft final consonants.
        backchannel_remaining_ms: with less than this of the response left to hear, an interruption is not a
            backchannel: a "yes" then answers the response.
        backchannel_ms: speech over the response that lasts longer than this is not a "mhm" or "right"; the response
            stops before the transcript is known.
        soft_end_ms: silence after which the turn may be over and a speculative response starts. Four windows; with
            three, half of all pauses between two words start one in vain.
        early_transcription_ms: silence after which the turn is transcribed with the accurate settings: half of
            `soft_end_ms`, so that the transcript is nearly ready when the speculative response starts.
        resume_ms: voiced sound that cancels a speculative response: one window alone is a click or a breath.
        shortest_wait_ms, longest_wait_ms: silence that ends a turn which is certainly over, and one which certainly is
            not. While the response is not ready, the longest one applies: listening longer costs nothing.
            People take turns after 200 ms (Stivers et al. 2009); after 700 they wonder whether they were heard.
        statement_wait_ms: at least this silence after a statement, however complete it is: a question often follows ("I
            lost my wallet last night, so how can I …"). Between two clauses people pause for 350 ms and more, and the
            detector sees the next word 60 to 160 ms late.
        dictation_wait_ms: for a user who dictates or spells, with pauses between groups of digits.
        doubtful_wait_ms: for text that does not look complete, but may be: a misheard word ("Any chance of snow on
            fried") looks like a missing one. Few people pause longer than this where they were heard right.
        patient_wait_ms: for text that cannot be complete ("to the", "um"), when the user expects no response yet. Also
            the upper bound of a wait that follows from the user's earlier pauses.
        end_silence_ms: silence that ends a turn when the client wants silence alone to decide. The Realtime protocol's
            own default; without other evidence, a shorter one cuts users off in the middle of a sentence.
        prefix_ms: sound kept from before the onset: soft first consonants come before the detector is certain.
        max_turn_ms: a turn ends here even if the sound continues (a radio, a fan that sounds like speech).
        min_commit_ms: a client cannot commit less audio than this (the Realtime protocol's rule).
        partial_interval_ms: new speech before the next interim transcript, or `partial_interval_factor` times as long
            as the last one took if that is longer: the accurate transcription at the end should find the recognizer
            free.
        first_clause_ms: when the first clause of a spoken response is needed, counted from the transcript: what is
            left of a second after the wait, the transcription and the synthesis. A language model that can will hurry.
        playback_slack_ms: how much later than our estimate the client may finish playing: network and its buffer.
    """

    onset_ms: int = 64
    barge_in_ms: int = 64
    onset_gap_ms: int = 96
    tail_ms: int = 100
    backchannel_remaining_ms: int = 700
    backchannel_ms: int = 800
    soft_end_ms: int = 128
    early_transcription_ms: int = 64
    resume_ms: int = 64
    shortest_wait_ms: int = 250
    longest_wait_ms: int = 700
    statement_wait_ms: int = 600
    dictation_wait_ms: int = 800
    doubtful_wait_ms: int = 1000
    patient_wait_ms: int = 1400
    end_silence_ms: int = 500
    prefix_ms: int = 300
    max_turn_ms: int = 120_000
    min_commit_ms: int = 100
    partial_interval_ms: int = 240
    partial_interval_factor: float = 3.0
    first_clause_ms: int = 200
    playback_slack_ms: int = 300
